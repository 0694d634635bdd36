"""Every page in a real browser: nothing from elsewhere, nothing broken, nothing too wide, too heavy or out of reach.

A page is opened from a server of this machine at desktop and at phone width; each time the reader's system then turns
from light to dark. What was seen is kept, and the tests ask about it.
"""

import gzip
import json
from dataclasses import dataclass, field
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from chapters import documents
from settling import settle

WIDTHS = {"desktop": 1280, "phone": 390}
SCHEMES = ("light", "dark")
MOST_BYTES = 1_500_000  # of all that a page loads
NO_CHAPTERS = ["search.html", "genindex.html"]

pytestmark = pytest.mark.browser

TURNED = """
const [scheme, done] = arguments, theme = () => document.documentElement.dataset.theme;
const look = () => !theme() || theme() === scheme ? done() : requestAnimationFrame(look);
look();
"""

LOOK = r"""
const root = document.documentElement, room = root.clientWidth;
const article = document.querySelector('article') || document.querySelector('main');  // search.html has no article
const name = e => `${e.tagName}.${e.getAttribute('class') || ''} ${e.textContent.trim().slice(0, 40)}`;
const shown = e => e.checkVisibility() && e.getBoundingClientRect().width > 1;
const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);

function tooWide() {
  if (Math.max(root.scrollWidth, document.body.scrollWidth) <= room) return [];
  const boxed = e => e && e !== document.body && (scrolls(e) || boxed(e.parentElement));
  const beyond = [...document.body.querySelectorAll('*')].filter(
    e => e.getBoundingClientRect().right > room + 1 && !boxed(e.parentElement));
  return [`${root.scrollWidth} px wide, room for ${room}`, ...beyond.map(name).slice(0, 5)];
}

// What sticks out of the column, or is cut off at a box's edge, and has no box around it that scrolls.
function spilled() {
  const edge = article.getBoundingClientRect().right + 1;
  const kinds = 'table, pre, code, img, svg, mjx-container, div.math, iframe, video, .cell_output, .output';
  return [...article.querySelectorAll(kinds)].filter(shown).filter(e => {
    for (let box = e; box !== article; box = box.parentElement) if (scrolls(box)) return false;
    const block = !getComputedStyle(e).display.startsWith('inline') && !e.closest('svg, mjx-container');
    return block && e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > edge;
  }).map(name);
}

function rawMaths() {
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (text.parentElement.closest('pre, code, script, style, mjx-container')) continue;
    const raw = text.data.match(/\\[(\[].{0,40}|\$[^$\s][^$]*\$/);
    if (raw) found.push(raw[0]);
  }
  return found;
}

const maths = [...document.querySelectorAll('.math')];
// Cells and commands. Outputs may be wider, and so may labkit's files.
const written = ['bash', 'default', 'sh', 'shell', 'text'].map(language => `.highlight-${language} pre`);
const code = [...article.querySelectorAll(['.cell_input pre', ...written])]
  .filter(e => shown(e) && !e.closest('.cell_output'));
return {
  tooWide: tooWide(),
  spilled: spilled(),
  longCode: code.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent.trim().slice(0, 80)),
  rawMaths: rawMaths(),
  mathsNotRendered: maths.filter(e => e.querySelectorAll('mjx-container').length !== 1).map(name),
  mathsElsewhere: document.querySelectorAll('mjx-container').length - maths.length,
  mathmlTooWide: [...document.querySelectorAll('mjx-assistive-mml')].filter(
    e => e.getBoundingClientRect().width > e.parentElement.getBoundingClientRect().width + 1).map(name),
  mathsErrors: [...document.querySelectorAll('mjx-merror, [data-mjx-error]')].map(name),
  picturesMissing: [...document.images].filter(e => !e.complete || !e.naturalWidth).map(e => e.src),
};
"""

# An audit of thousands of elements takes long. So of the pieces of code that the same rules of style colour one is kept
# as an element. And the drawings of formulas go: they hold no text, and screen readers are given MathML instead.
THIN = """
const known = new Set();
for (const piece of document.querySelectorAll('article pre span')) {
  const box = piece.closest('.cell_input, .cell_output, article');
  const key = [piece.className, piece.getAttribute('style'), box.className].join();
  if (known.has(key)) piece.replaceWith(...piece.childNodes);
  known.add(key);
}
const drawings = [...document.querySelectorAll('mjx-math')].map(drawing => [drawing, drawing.getBoundingClientRect()]);
for (const [drawing, {width, height}] of drawings) {
  drawing.replaceChildren();
  Object.assign(drawing.style, {display: 'inline-block', width: `${width}px`, height: `${height}px`});
}
"""

# axe-core's rules; what it calls serious or critical hinders somebody. Those on colours, the slowest, are asked in both
# schemes, at one width; the others at both widths.
AUDIT = """
const [options, done] = arguments;
axe.run({resultTypes: ['violations'], preload: false, ...options}).then(found => done(found.violations
  .filter(rule => ['serious', 'critical'].includes(rule.impact))
  .flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`))),
  error => done([String(error)]));
"""
COLOURS = ["color-contrast", "link-in-text-block"]
AUDITS = {
    WIDTHS["desktop"]: {"dark": {"runOnly": COLOURS}, "light": {}},
    WIDTHS["phone"]: {"light": {"rules": {rule: {"enabled": False} for rule in COLOURS}}},
}


@dataclass
class Visit:
    """What the browser did and showed: for each scheme what LOOK and AUDIT return."""

    requests: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    looks: dict[str, dict] = field(default_factory=dict)
    audits: dict[str, list[str]] = field(default_factory=dict)

    def listen(self, browser) -> None:
        """Take over what the browser's logs have since they were last read."""
        for entry in browser.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            self._heed(event["method"], event["params"])
        self.console += [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]

    def _heed(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.add(params["request"]["url"].split("#")[0])
        elif method == "Network.responseReceived" and params["response"]["status"] >= 400:
            self.failures.append(f"{params['response']['status']} {params['response']['url']}")
        elif method == "Network.loadingFailed":
            self.failures.append(f"{params['errorText']} {params.get('blockedReason', '')} {params['type']}")


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def site(html):
    """Address of the built book on a server of this machine, which has its other languages as well."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=html.parent)) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{html.name}"
        server.shutdown()


def open_page(browser, address, width):
    """Open a page as a reader with a light system does; it has settled when this returns."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    turn(browser, "light")
    visit = Visit()
    visit.listen(browser)  # forget the page before
    browser.get(address)
    settle(browser)
    return Visit()


def turn(browser, scheme):
    """The reader's system turns light or dark, without movement on the page."""
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    media = [{"name": name, "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    browser.execute_async_script(TURNED, scheme)


@pytest.fixture(scope="module")
def visit(browser, site):
    """Function: what a page at a width showed; it is opened once."""
    axe = distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js")
    audit = THIN + Path(axe).read_text(encoding="utf-8")

    @cache
    def visit(page, width):
        seen = open_page(browser, f"{site}/{page}", width)
        for scheme in SCHEMES:
            turn(browser, scheme)
            seen.looks[scheme] = browser.execute_script(LOOK)
        seen.listen(browser)
        browser.execute_script(audit)
        for scheme, options in AUDITS[width].items():
            turn(browser, scheme)
            seen.audits[scheme] = browser.execute_async_script(AUDIT, options)
        return seen

    return visit


@pytest.fixture(params=[*documents(), *NO_CHAPTERS])
def place(request):
    """Every page, relative to the book's top folder."""
    return request.param if request.param in NO_CHAPTERS else f"{request.param}.html"


@pytest.fixture(params=WIDTHS.values(), ids=WIDTHS.keys())
def seen(visit, place, request):
    """What a page showed at one of the widths."""
    return visit(place, request.param)


def test_no_request_leaves_the_site(seen, site):
    assert len(seen.requests) > 10, "the network's log is not read"
    own = "chrome://"  # of the page with which the browser begins
    server = site.rpartition("/")[0]
    assert [url for url in seen.requests if not url.startswith((f"{server}/", "data:", own))] == []


def test_nothing_fails(seen):
    assert seen.failures + seen.console == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_page_fits(seen, scheme):
    look = seen.looks[scheme]
    assert look["tooWide"] == [], "the page scrolls sideways"
    assert look["spilled"] == [], "wider than the column, or cut off, without a box that scrolls"
    assert look["picturesMissing"] == []


def test_code_is_read_without_scrolling(visit, place):
    """On a desktop; CONTRIBUTING.md says how long a line may be."""
    assert visit(place, WIDTHS["desktop"]).looks["light"]["longCode"] == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_formulas_are_drawn(seen, scheme):
    look = seen.looks[scheme]
    assert look["rawMaths"] == []
    assert look["mathsNotRendered"] == look["mathsErrors"] == []
    assert look["mathsElsewhere"] == 0
    assert look["mathmlTooWide"] == [], "fonts for MathML differ between machines, and wide ones made the page scroll"


def test_accessible(seen):
    assert "light" in seen.audits
    assert {scheme: found for scheme, found in seen.audits.items() if found} == {}


def test_page_is_light(seen, site, html):
    """What a web server sends for all that the browser asked for: text compressed by gzip, as servers do.

    The index of all words, which the search page alone loads, is excepted.
    """
    paths = {unquote(urlsplit(url).path).removeprefix(f"/{html.name}/") for url in seen.requests
             if url.startswith(f"{site}/")}  # fmt: skip
    sizes = {path: sent(html / path) for path in paths - {"searchindex.js"}}
    heaviest = sorted(((size, path) for path, size in sizes.items()), reverse=True)[:8]
    assert sum(sizes.values()) < MOST_BYTES, heaviest


@cache
def sent(file):
    """Bytes that a web server sends for a file."""
    content = file.read_bytes()
    return min(len(content), len(gzip.compress(content, 6)))


@pytest.mark.parametrize("name", ["book/3-thor/inverse", "book/1-cifar10/network", "book/preface/reader"])
def test_a_page_opened_as_a_file_needs_no_server(browser, html, name):
    seen = open_page(browser, (html / f"{name}.html").as_uri(), WIDTHS["desktop"])
    look = browser.execute_script(LOOK)
    seen.listen(browser)
    assert [url for url in seen.requests if not url.startswith((html.parent.as_uri(), "data:"))] == []
    assert seen.failures + seen.console == []
    assert look["rawMaths"] == look["mathsNotRendered"] == look["mathsErrors"] == look["picturesMissing"] == []
