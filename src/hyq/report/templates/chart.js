"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const W = 520, H = 340, L = 66, R = 18, T = 30, B = 40;
const scale = v => data.log ? Math.log10(v) : v; // of online steps
const x0 = scale(data.grid[0]), x1 = scale(data.grid[data.grid.length - 1]);
const px = v => L + (W - L - R) * (scale(v) - x0) / (x1 - x0 || 1);
let low = 0, high = 1; // of the panel being drawn
const py = v => T + (H - T - B) * (high + 0.08 * (high - low) - v) / (1.11 * (high - low) || 1);
const number = (v, digits) => (v + 0).toLocaleString("en", { maximumSignificantDigits: digits }); // + 0: never "-0"
const ticks = (from, to) => { // at multiples of 1, 2 or 5 times a power of ten
  const span = to - from || 1, power = 10 ** Math.floor(Math.log10(span / 4));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => span / s <= 5);
  const found = [];
  for (let k = Math.ceil((from - 0.03 * span) / step); k * step <= to + 0.08 * span; k++) found.push(k * step);
  return found;
};
const steps = () => { // marks of the horizontal axis
  if (!data.log) return ticks(x0, x1);
  const between = x1 - x0 < 2 ? [1, 2, 5] : [1]; // powers of ten alone would be too few
  const powers = Array.from({ length: Math.max(0, Math.floor(x1) - Math.floor(x0) + 1) }, (_, i) => 10 ** (Math.floor(x0) + i));
  return powers.flatMap(power => between.map(m => m * power));
};
const node = (name, attributes, parent) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  parent.append(made);
  return made;
};
const path = values => values.map((v, i) => `${i ? "L" : "M"}${px(data.grid[i]).toFixed(1)} ${py(v).toFixed(1)}`).join("");
const short = v => v >= 1e6 ? v / 1e6 + "M" : v >= 1e3 ? v / 1e3 + "k" : v;
const shown = {};
for (const s of data.series) shown[s.label] = shown[s.label] || s.shown;

function range(panel) { // of the returns in a panel, or in all of them where they can be compared
  if (data.range) return data.range;
  const beside = data.series.filter(s => data.shares_scale || s.panel === panel);
  const values = beside.flatMap(s => s.level !== undefined ? [s.level] : [...s.low, ...s.high]);
  return values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
}

function axes(svg, title) {
  node("text", { x: L, y: 18, "font-weight": 600, "font-size": 14 }, svg).textContent = title;
  for (const v of ticks(low, high)) {
    node("line", { x1: L, x2: W - R, y1: py(v), y2: py(v), class: "grid" }, svg);
    node("text", { x: L - 6, y: py(v) + 4, "text-anchor": "end", "font-size": 11, class: "tick" }, svg).textContent = number(v, 6);
  }
  for (const v of steps().filter(v => scale(v) >= x0 && scale(v) <= x1)) {
    node("line", { x1: px(v), x2: px(v), y1: T, y2: H - B, class: "grid" }, svg);
    node("text", { x: px(v), y: H - B + 16, "text-anchor": "middle", "font-size": 11 }, svg).textContent = short(v);
  }
  const middle = T + (H - T - B) / 2;
  node("text", { x: 14, y: middle, "text-anchor": "middle", "font-size": 12, transform: `rotate(-90 14 ${middle})` }, svg).textContent = data.label;
  node("text", { x: (L + W) / 2, y: H - 6, "text-anchor": "middle", "font-size": 12 }, svg).textContent = "online steps";
}

function draw() {
  const chart = document.getElementById("chart");
  chart.replaceChildren();
  for (const panel of data.panels) {
    [low, high] = range(panel);
    if (high === low) [low, high] = [low - 1, high + 1];
    const svg = node("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": panel }, chart);
    axes(svg, panel);
    const here = data.series.filter(s => s.panel === panel && shown[s.label]);
    for (const s of here) {
      const group = node("g", { "data-label": s.label }, svg);
      if (s.level !== undefined) {
        node("line", { x1: L, x2: W - R, y1: py(s.level), y2: py(s.level), stroke: s.color, "stroke-width": 1.6, "stroke-dasharray": s.dashes }, group);
      } else if (s.middle.length) {
        const back = s.low.map((v, i) => `L${px(data.grid[i]).toFixed(1)} ${py(v).toFixed(1)}`).reverse().join("");
        node("path", { d: path(s.high) + back + "Z", fill: s.color, opacity: 0.16 }, group);
        node("path", { d: path(s.middle), fill: "none", stroke: s.color, "stroke-width": 2, "stroke-dasharray": s.dashes || "none" }, group);
      }
    }
    svg.addEventListener("mousemove", event => hover(event, svg, here));
    svg.addEventListener("mouseleave", () => { document.getElementById("tip").style.display = "none"; });
  }
}

function hover(event, svg, here) {
  const box = svg.getBoundingClientRect();
  const along = x0 + (x1 - x0) * ((event.clientX - box.left) / box.width * W - L) / (W - L - R);
  const at = data.log ? 10 ** along : along;
  let i = data.grid.findIndex(v => v >= at);
  if (i < 0) i = data.grid.length - 1;
  const tip = document.getElementById("tip");
  const known = here.filter(s => "level" in s || i < s.middle.length);
  const lines = known.map(s => `${s.label}: ${number(s.level ?? s.middle[i], 4)}`);
  tip.replaceChildren(...[`${short(Math.round(data.grid[i] / 1000) * 1000 || Math.round(data.grid[i]))} steps`, ...lines].map(text => {
    const row = document.createElement("div");
    row.textContent = text;
    return row;
  }));
  tip.style.display = "block";
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = event.clientY + 14 + "px";
}

const legend = document.getElementById("legend");
for (const label in shown) {
  const button = document.createElement("button");
  const { color, dashes } = data.series.find(s => s.label === label);
  const sample = node("svg", { viewBox: "0 0 28 8", "aria-hidden": true }, button);
  node("line", { x1: 0, x2: 28, y1: 4, y2: 4, stroke: color, "stroke-width": 3, "stroke-dasharray": dashes || "none" }, sample);
  button.append(label);
  button.setAttribute("aria-pressed", shown[label]);
  button.addEventListener("click", () => {
    shown[label] = !shown[label];
    button.setAttribute("aria-pressed", shown[label]);
    draw();
  });
  legend.append(button);
}
draw();
