"""Pages as a browser shows them: images on a computer and a phone, light and dark, and complaints.

python -m tools.screens OUT PAGE...           # files, or addresses of this machine

Each page is opened at 1280 and at 390 pixels, with folded parts open, as it is and with every
second method switched off. Complaints: an error on the console, a request to another host, a page
or text that is wider than its place, text over text in a figure. Needs Chromium and its driver.
"""

import json
import shutil
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update",
         "--disable-sync")  # fmt: skip
LOOKS = (("wide", 1280, "light"), ("phone", 390, "light"), ("dark", 1280, "dark"))
LONGEST = 5000
"""Pixels of a page's height that are kept; the whole of it is searched for faults."""
FAULTS = r"""
    const bad = [], shown = e => e.getClientRects().length;
    const said = e => e.textContent.trim().replace(/\s+/g, ' ').slice(0, 60);
    const width = document.documentElement.scrollWidth;
    if (width > innerWidth) bad.push(`the page is ${width} pixels wide`);
    for (const e of document.querySelectorAll('main *, article *')) {
      if (!shown(e) || e.closest('svg, .md-sidebar') || !said(e)) continue;
      const box = e.getBoundingClientRect(), style = getComputedStyle(e);
      const rolls = e.closest('pre, code, .md-typeset__scrollwrap, .highlight');
      if (box.right > innerWidth + 1 && !rolls) bad.push('beyond the edge: ' + said(e));
      const hidden = style.overflowX === 'hidden' && e.scrollWidth > e.clientWidth + 1;
      if (hidden && !rolls) bad.push('cut off: ' + said(e));
    }
    for (const image of document.images)
      if (!image.naturalWidth && image.loading !== 'lazy') bad.push('no image: ' + image.alt);
    for (const svg of document.querySelectorAll('figure svg')) {
      const own = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
      const boxes = texts.map(text => text.getBoundingClientRect());
      boxes.forEach((a, i) => {
        const out = a.left < own.left - 1 || a.right > own.right + 1;
        if (out && said(texts[i])) bad.push('cut off: ' + said(texts[i]));
        boxes.slice(0, i).forEach((b, j) => {
          const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
          const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
          if (wide > 1 && high > 4) bad.push(`overlap: ${said(texts[i])} / ${said(texts[j])}`);
        });
      });
    }
    return bad;
"""
OPEN = "document.querySelectorAll('main details, article details').forEach(e => e.open = true)"
TOGGLE = "document.querySelectorAll('.legend button').forEach((e, i) => i % 2 || e.click())"


def browser(profile: str) -> Chrome:
    """Start Chromium, with its console and its requests logged."""
    options = ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))


def logged(chrome: Chrome) -> Iterator[str]:
    """Complain of what the console says, and of requests to other hosts."""
    for entry in chrome.get_log("browser"):  # type: ignore[no-untyped-call]
        yield f"console: {entry['message'][:200]}"
    for entry in chrome.get_log("performance"):  # type: ignore[no-untyped-call]
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            address = urlsplit(message["params"]["request"]["url"])
            outside = address.hostname not in ("127.0.0.1", "localhost")
            if outside and address.scheme.startswith(("http", "ws")):
                yield f"request to {address.hostname}"


def seen(chrome: Chrome, address: str, image: Path) -> Iterator[str]:
    """Open a page in every look, keep its image, and complain of what is wrong."""
    for name, width, scheme in LOOKS:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        chrome.get(address)
        chrome.execute_script(OPEN)
        found = list(chrome.execute_script(FAULTS))
        height = chrome.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, LONGEST), "scale": 1}
        whole = {"captureBeyondViewport": True, "clip": clip}
        shot = chrome.execute_cdp_cmd("Page.captureScreenshot", whole)
        image.with_name(f"{image.name}-{name}.png").write_bytes(b64decode(shot["data"]))
        chrome.execute_script(TOGGLE)
        found += [f"toggled: {one}" for one in chrome.execute_script(FAULTS) if one not in found]
        chrome.execute_script("localStorage.clear()")  # where the site keeps light or dark
        chrome.get("about:blank")
        yield from (f"{name}: {one}" for one in [*found, *logged(chrome)])


def main() -> int:
    """Look at the pages that are named; return 1 where something is wrong."""
    out, *pages = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    wrong = False
    with tempfile.TemporaryDirectory() as profile:
        chrome = browser(profile)
        for page in pages:
            address = page if "://" in page else Path(page).resolve().as_uri()
            name = urlsplit(address).path.strip("/").removesuffix(".html").replace("/", "-")[-60:]
            for complaint in seen(chrome, address, Path(out) / (name or "page")):
                print(f"{page}: {complaint}", flush=True)
                wrong = True
        chrome.quit()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
