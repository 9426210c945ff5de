"use strict";
const T = 20, B = 40, L = 56, ROW = 13, INSIDE = 0.75;
const MARKS = { o: "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0", s: "M-3-3h6v6h-6z", x: "M-3-3l6 6M3-3l-6 6" };
const hidden = {}; // by chart and label, kept when the page loads itself again
const pen = document.createElement("canvas").getContext("2d");
pen.font = "600 11px system-ui, sans-serif";
const tip = document.getElementById("tip");
const number = (v, digits = 4) => (v + 0).toLocaleString("en", { maximumSignificantDigits: digits }); // + 0: never "-0"
const short = v => {
  const [unit, name] = Math.abs(v) >= 1e6 ? [1e6, "M"] : Math.abs(v) >= 1e3 ? [1e3, "k"] : [1, ""];
  return v % (unit / 100) ? number(v) : number(v / unit) + name;
};
const tick = v => Math.abs(v) >= 1e6 ? Number(v.toPrecision(3)).toExponential().replace("e+", "e") : Math.abs(v) >= 1e4 ? short(v) : number(v, 6);
const node = (name, attributes, parent, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
};
const element = (name, parent, text = "", className = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  parent.append(made);
  return made;
};
const ticks = (from, to, most = 5) => { // at multiples of 1, 2 or 5 times a power of ten
  const span = to - from || 1, power = 10 ** Math.floor(Math.log10(span / (most - 1)));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => span / s <= most);
  const found = [];
  for (let k = Math.ceil((from - 0.03 * span) / step); k * step <= to + 0.04 * span; k++) found.push(k * step);
  return found;
};
const powers = (from, to, base = 10) => {
  const log = v => Math.log(v) / Math.log(base), found = [];
  const between = base === 10 && log(to) - log(from) < 2 ? [1, 2, 5] : [1]; // powers of ten alone would be too few
  const apart = Math.ceil((log(to) - log(from)) / 6) || 1;
  for (let k = Math.floor(log(from)); k <= log(to); k += apart) found.push(...between.map(m => m * base ** k));
  return found.filter(v => v >= from * 0.999 && v <= to * 1.001);
};
const values = s => "level" in s ? [s.level] : [...s.y, ...s.low, ...s.high, ...s.others.flatMap(o => o[1]), ...(s.interval || [])];
const columns = s => s.x ? [...s.x, ...s.others.flatMap(o => o[0])] : [];
const end = s => "level" in s ? [Infinity, s.level] : [[s.x, s.y], ...s.others].filter(o => o[0].length).map(o => [o[0].at(-1), o[1].at(-1)])[0];

function horizontal(panel, series) { // where values lie, as shares of the axis
  const all = series.flatMap(columns), first = panel.first, base = panel.log_x;
  let [x0, x1] = panel.x_range || [Math.min(base ? Infinity : 0, ...all), Math.max(...all, base ? first : 1)];
  if (base && !(x0 < first)) x0 = Math.min(x0, first);
  const log = v => Math.log(v) / Math.log(base);
  const zero = 0.1 * (log(Math.max(x1, first)) - log(first) || 1); // the place of 0 left of the first power
  const t = v => !base ? v : v >= first || panel.x_range ? log(v) : log(first) + (v / first - 1) * zero;
  const share = v => (t(v) - t(x0)) / (t(x1) - t(x0) || 1);
  const at = !base ? ticks(x0, x1) : [...(x0 < first && !panel.x_range ? [0] : []), ...powers(Math.max(x0, panel.x_range ? x0 : first), x1, base)];
  return { share, at: at.filter(v => v >= x0 && v <= x1) };
}

function vertical(panel, series) {
  const all = series.flatMap(values);
  let [low, high] = panel.y_range || (all.length ? [Math.min(...all), Math.max(...all)] : [0, 1]);
  if (panel.log_y) {
    const log = v => Math.log10(v), pad = 0.04 * (log(high) - log(low) || 1);
    return { share: v => (log(v) - log(low) + pad) / (log(high) - log(low) + 2 * pad || 1), at: powers(low, high) };
  }
  if (low === high) { const around = Math.max(1, Math.abs(low) / 20); [low, high] = [low - around, high + around]; }
  const pad = 0.04 * (high - low);
  return { share: v => (v - low + pad) / (high - low + 2 * pad), at: ticks(low, high) };
}

const wrapped = (text, width) => text.split(" ").reduce((lines, word) => {
  const longer = `${lines.at(-1)} ${word}`;
  if (lines.length && pen.measureText(longer).width <= width) lines[lines.length - 1] = longer; else lines.push(word);
  return lines;
}, []);
const wide = lines => Math.max(...lines.map(line => pen.measureText(line).width));

function spread(labels, top, bottom) { // moves them apart, and keeps them within
  labels.sort((a, b) => a.y - b.y);
  let free = top;
  for (const one of labels) { one.at = Math.max(one.y, free + one.height / 2); free = one.at + one.height / 2; }
  free = bottom;
  for (const one of labels.toReversed()) { one.at = Math.min(one.at, free - one.height / 2); free = one.at - one.height / 2; }
}

function draw(holder, panel, series, everything) {
  const W = Math.max(holder.clientWidth, 260), svg = node("svg", { role: "img", "aria-label": panel.title, width: W }, holder);
  const x = horizontal(panel, series), y = vertical(panel, everything);
  const named = series.filter(s => s.name && s.kind !== "points" && s.kind !== "area" && end(s));
  const labels = named.map(s => ({ s, along: Math.min(x.share(end(s)[0]), 1), value: end(s)[1] }));
  const room = 0.34 * W;
  for (const one of labels) { one.lines = wrapped(one.s.name, room - 14); one.width = wide(one.lines); }
  const R = Math.max(14, ...labels.map(one => one.along < INSIDE ? 14 : one.width + 16));
  const plot = W - L - R;
  for (const one of labels) one.inside = one.along < INSIDE && (1 - one.along) * plot > pen.measureText(one.s.name).width;
  const right = labels.some(one => !one.inside) ? Math.max(R, ...labels.filter(one => !one.inside).map(one => one.width + 16)) : R;
  for (const one of labels) { if (one.inside) one.lines = [one.s.name]; one.height = ROW * one.lines.length + 1; }
  const H = Math.max(Math.min(W > 600 ? 380 : 320, 0.75 * W), T + B + labels.filter(one => !one.inside).reduce((sum, one) => sum + one.height, 8));
  svg.setAttribute("height", H);
  const px = v => L + (W - L - right) * x.share(v), py = v => T + (H - T - B) * (1 - y.share(v)), edge = W - right;
  const line = (xs, ys) => xs.map((v, i) => `${i ? "L" : "M"}${px(v).toFixed(1)} ${py(ys[i]).toFixed(1)}`).join("");
  for (const v of y.at) {
    node("line", { x1: L, x2: edge, y1: py(v), y2: py(v), class: "grid" }, svg);
    node("text", { x: L - 6, y: py(v) + 4, "text-anchor": "end", class: "tick" }, svg, tick(v));
  }
  let free = -Infinity;
  for (const v of x.at) {
    node("line", { x1: px(v), x2: px(v), y1: T, y2: H - B, class: "grid" }, svg);
    const half = pen.measureText(short(v)).width / 2 + 3;
    if (px(v) - half < free) continue;
    free = px(v) + half;
    node("text", { x: px(v), y: H - B + 16, "text-anchor": "middle" }, svg, short(v));
  }
  const middle = T + (H - T - B) / 2;
  node("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, svg, panel.y_label);
  node("text", { x: (L + edge) / 2, y: H - 6, "text-anchor": "middle" }, svg, panel.x_label);
  const groups = new Map();
  for (const s of series) {
    const group = node("g", { "data-label": s.label, class: "series", style: `--c: ${/^#[0-9a-f]{6}$/i.test(s.color) ? s.color : "#777777"}` }, svg);
    groups.set(s, group);
    const stroke = { stroke: s.color, fill: "none", "stroke-dasharray": s.dashes || "none" };
    if ("level" in s) {
      if (s.low !== null) node("rect", { x: L, y: py(s.high), width: edge - L, height: Math.max(py(s.low) - py(s.high), 1), fill: s.color, opacity: 0.07 }, group);
      node("line", { x1: L, x2: edge, y1: py(s.level), y2: py(s.level), ...stroke, "stroke-width": 1.5 }, group);
      continue;
    }
    if (s.kind === "area" && s.x.length) {
      node("path", { d: `${line(s.x, s.y)}L${px(s.x.at(-1))} ${py(0)}L${px(s.x[0])} ${py(0)}Z`, fill: s.color }, group);
      continue;
    }
    if (s.low.length) {
      const back = s.low.map((v, i) => `L${px(s.x[i]).toFixed(1)} ${py(v).toFixed(1)}`).reverse().join("");
      node("path", { d: `${line(s.x, s.high)}${back}Z`, fill: s.color, opacity: 0.16 }, group);
    }
    for (const [xs, ys, width] of [...s.others.map(o => [...o, 1]), [s.x, s.y, 2]]) {
      if (s.kind === "line") node("path", { d: line(xs, ys), ...stroke, "stroke-width": width, opacity: width === 1 ? 0.75 : 1 }, group);
      if (s.marker) xs.forEach((v, i) => node("path", { d: MARKS[s.marker] || MARKS.o, fill: s.marker === "x" ? "none" : s.color, stroke: s.color, transform: `translate(${px(v)} ${py(ys[i])}) scale(${width === 1 ? 0.7 : 1})` }, group));
    }
    if (s.interval) {
      const at = px(end(s)[0]), [low, high] = s.interval.map(py);
      node("path", { d: `M${at} ${low}V${high}M${at - 4} ${low}h8M${at - 4} ${high}h8`, ...stroke, "stroke-width": 1.6 }, group);
    }
  }
  for (const inside of [true, false]) {
    const here = labels.filter(one => one.inside === inside);
    for (const one of here) one.y = py(one.value) - (inside ? 9 : 0);
    spread(here, T - 18, H - B + 4);
    for (const one of here) {
      const from = L + (edge - L) * one.along, left = inside ? from + 5 : edge + 12, group = groups.get(one.s);
      if (!inside) node("path", { d: `M${Math.min(from + 2, edge)} ${py(one.value)}L${edge + 3} ${one.along < 0.98 ? one.at : py(one.value)}L${edge + 10} ${one.at}`, class: "leader" }, group);
      const text = node("text", { class: "name" }, group);
      one.lines.forEach((words, i) => node("tspan", { x: left, y: one.at + 4 + ROW * (i - (one.lines.length - 1) / 2) }, text, words));
    }
  }
  svg.addEventListener("pointermove", event => hover(event, svg, series, x.share, panel, (event.clientX - svg.getBoundingClientRect().left - L) / (edge - L)));
  svg.addEventListener("pointerleave", () => { tip.style.display = "none"; });
}

function hover(event, svg, series, share, panel, along) {
  const steps = series.flatMap(s => s.x || []), away = v => Math.abs(share(v) - along);
  const at = steps.reduce((best, v) => away(v) < away(best) ? v : best, steps[0] ?? 0);
  const said = s => {
    if ("level" in s) return s.label && `${s.label}: ${number(s.level)}`;
    const i = s.x.findLastIndex(v => v <= at);
    if (i < 0 || at > s.x.at(-1)) return "";
    return `${s.label}: ${number(s.y[i])}${s.low.length ? ` (${number(s.low[i])} to ${number(s.high[i])})` : ""}`;
  };
  tip.replaceChildren();
  for (const text of [`${panel.x_label}: ${number(at, 6)}`, ...series.map(said).filter(Boolean)]) element("div", tip, text);
  tip.style.display = "block";
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}

function chart(holder, index) {
  const data = JSON.parse(holder.querySelector("script").textContent), legend = element("div", holder, "", "legend");
  const grid = element("div", holder, "", data.panels.length > 9 ? "panels many" : data.panels.length === 1 ? "panels one" : "panels");
  const everyone = data.panels.flatMap(p => p.series), drawn = s => !(hidden[`${index} ${s.label}`] ?? !s.shown);
  const paint = () => {
    grid.replaceChildren();
    for (const panel of data.panels) {
      const figure = element("figure", grid), caption = element("figcaption", figure);
      element("b", caption, panel.title);
      element("span", caption, panel.said);
      for (const s of panel.series.filter(s => s.label && s.kind && s.kind !== "line")) {
        const key = element("i", caption, "", "series key");
        key.style.setProperty("--c", s.color);
        key.textContent = `${s.kind === "area" ? "\u25a0" : s.marker === "x" ? "\u00d7" : "\u25cf"} ${s.label}`;
      }
      const here = panel.series.filter(drawn);
      draw(figure, panel, here, data.share_y ? everyone.filter(drawn) : here);
    }
  };
  const within = label => data.panels.filter(p => p.series.some(s => s.label === label)).length;
  const labels = [...new Set(everyone.filter(s => s.label && !(s.mark && s.shown)).map(s => s.label))];
  const names = labels.filter(label => labels.length <= 12 || data.panels.length === 1 || within(label) > 1);
  const apart = data.panels.length > 1 && names.every(label => within(label) === 1); // named where they are drawn
  for (const label of names.length > 1 && !apart ? names : []) {
    const button = element("button", legend), first = everyone.find(s => s.label === label);
    const sample = node("svg", { viewBox: "0 0 28 8", "aria-hidden": true, class: "series", style: `--c: ${first.color}` }, button);
    node("line", { x1: 0, x2: 28, y1: 4, y2: 4, stroke: first.color, "stroke-width": 3, "stroke-dasharray": first.dashes || "none" }, sample);
    button.append(label);
    const press = () => button.setAttribute("aria-pressed", everyone.some(s => s.label === label && drawn(s)));
    press();
    button.addEventListener("click", () => {
      hidden[`${index} ${label}`] = button.getAttribute("aria-pressed") === "true";
      press();
      paint();
    });
  }
  paint();
  return paint;
}

let charts = [], width = innerWidth;
const start = () => { charts = [...document.querySelectorAll(".chart")].map(chart); };
start();
addEventListener("resize", () => {
  if (width === innerWidth) return; // a phone's bars come and go
  width = innerWidth;
  charts.forEach(paint => paint());
});
const every = Number(document.body.dataset.refresh);
if (every) setInterval(async () => {
  if (document.hidden) return;
  try {
    const reply = await fetch(location.href, { cache: "no-store" });
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html").querySelector("main");
    const open = new Set([...document.querySelectorAll("details[open] > summary")].map(one => one.textContent));
    document.querySelector("main").replaceWith(fresh);
    for (const one of document.querySelectorAll("summary")) one.parentElement.open = open.has(one.textContent);
    document.body.classList.remove("stale");
    start();
  } catch { document.body.classList.add("stale"); }
}, 1000 * every);
