"""Opens the report pages of several models, and the site where it was built, and says what is wrong with them.

For each page, wide and narrow, by day and by night: no error in the console, no request to a network, a text for every
picture, links that lead somewhere, nothing that sticks out, colours that can be read. Pictures lie in build/screens.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

from tests.browser.chromium import Tab, chromium
from tests.browser.pages import report_pages

ROOT = Path(__file__).resolve().parents[2] / "build"
SITE, SCREENS, REPORTS = ROOT / "site", ROOT / "screens", ROOT / "reports"
#: Pages of the site that are photographed.
SHOWN = ("index", "start", "choose", "gallery/index", "families/boosting", "api/mercer.SparseGPRegressor", "report")

WITHOUT_TEXT = """[...document.querySelectorAll('img, svg[role=img]')]
  .filter(one => !one.closest('[aria-hidden=true]')).filter(one =>
  one.tagName == 'IMG' ? !one.hasAttribute('alt') || (one.alt.trim() == '' && one.naturalWidth > 64)
                       : !one.closest('[aria-label]') && !one.hasAttribute('title')
  ).map(one => one.outerHTML.slice(0, 120))"""
BROKEN = "[...document.images].filter(one => one.complete && one.naturalWidth == 0 && one.src).map(one => one.src)"
LINKS = "[...document.querySelectorAll('a[href]')].map(one => one.href)"
STICKS_OUT = """(() => { const wide = document.documentElement.clientWidth;
  return document.documentElement.scrollWidth <= wide + 1 ? [] :
  [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > wide + 1)
    .slice(0, 3).map(one => one.tagName + '.' + one.className + ' ' + one.textContent.slice(0, 40)) })()"""
#: Relative luminance of what has text of its own and of what lies behind it (WCAG 2).
COLOURS = """(() => { const light = text => { const parts = text.match(/[\\d.]+/g).map(Number);
    if (parts.length > 3 && parts[3] == 0) return null;
    const [r, g, b] = parts.slice(0, 3).map(v => v / 255)
      .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b };
  const back = one => { for (; one; one = one.parentElement) {
    const found = light(getComputedStyle(one).backgroundColor); if (found !== null) return found } return 1 };
  const own = one => [...one.childNodes].some(part => part.nodeType == 3 && part.data.trim());
  return [...document.querySelectorAll('p, h1, h2, td, th, a, figcaption')]
    .filter(one => own(one) && one.checkVisibility({ opacityProperty: true, visibilityProperty: true })).map(one => {
    const [a, b] = [light(getComputedStyle(one).color), back(one)].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), one.tagName + ' ' + one.textContent.trim().slice(0, 40)] })
  .filter(one => one[0] < 4.4).slice(0, 3) })()"""


@cache
def anchors(path: Path) -> set[str]:
    """Places of a page that links can lead to."""
    found: set[str] = set()

    class Ids(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.update(value for key, value in attrs if key in ("id", "name") and value)

    Ids().feed(path.read_text(encoding="utf-8"))
    return found


def lost(links: list[str]) -> list[str]:
    """Links to files or places that are not there; other servers are not asked."""
    out = []
    for link in dict.fromkeys(links):
        address, place = urldefrag(link)
        if not address.startswith("file:"):
            continue
        path = Path(unquote(urlparse(address).path))
        path = path / "index.html" if path.is_dir() else path
        if not path.exists() or (place and path.suffix == ".html" and unquote(place) not in anchors(path)):
            out.append(link)
    return out


def faults(tab: Tab, page: Path, width: int, dark: bool) -> list[str]:
    """What is wrong with a page in one window."""
    tab.show(page.as_uri(), width, dark)
    found = [f"console: {one}" for one in tab.complaints()]
    outside = [url for url in tab.requests() if not url.startswith(("file:", "data:", "about:", "blob:"))]
    found += [f"asks a network for {url}" for url in outside]
    found += [f"no text for {one}" for one in tab.value(WITHOUT_TEXT)]
    found += [f"picture is not there: {one}" for one in tab.value(BROKEN)]
    found += [f"link leads nowhere: {one}" for one in lost(tab.value(LINKS))]
    found += [f"sticks out: {one}" for one in tab.value(STICKS_OUT)]
    return found + [f"contrast {ratio:.1f}: {where}" for ratio, where in tab.value(COLOURS)]


def main() -> int:
    SCREENS.mkdir(parents=True, exist_ok=True)
    reports = report_pages(REPORTS)
    site = sorted(one for one in SITE.rglob("*.html") if "_static" not in one.parts)
    if not site:
        print("no site in build/site: run make docs to have it looked at too")
    wrong = 0
    with chromium() as tab:
        for page in [*reports, *site]:
            name = page.relative_to(ROOT).with_suffix("").as_posix()
            shown = page in reports or name.removeprefix("site/") in SHOWN
            windows = ((1200, False), (1200, True), (400, False), (400, True)) if shown else ((400, True),)
            for width, dark in windows:
                found = faults(tab, page, width, dark)
                wrong += len(found)
                for one in found:
                    print(f"{name}, {width} pixels, {'dark' if dark else 'light'}: {one}")
                if shown:
                    tab.picture(SCREENS / f"{name.replace('/', '_')}_{width}_{'dark' if dark else 'light'}.png")
    print(f"{len(reports)} reports and {len(site)} pages looked at, {wrong} faults; pictures in {SCREENS}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
