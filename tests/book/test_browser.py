"""Every page in a real browser: nothing from elsewhere, nothing broken, nothing too wide or out of reach.

A page is opened once, from a server of this machine, and looked at in desktop and in phone width, light and dark.
"""

import json
from importlib.metadata import distribution
from pathlib import Path

import pytest
from chapters import documents
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.ui import WebDriverWait
from settling import settle, size

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
PAGES = [*(f"{document}.html" for document in documents()), "search.html", "genindex.html"]
AXE = Path(distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js"))

TURNED = """
const [scheme, done] = arguments, theme = () => document.documentElement.dataset.theme;
const look = () => !theme() || theme() === scheme ? done() : requestAnimationFrame(look);
look();
"""

# What is wrong on a page as it is now: a list of texts.
LOOK = r"""
const root = document.documentElement, room = root.clientWidth, found = [];
const article = document.querySelector('article') || document.querySelector('main');  // search.html has no article
const name = e => `${e.tagName}.${e.getAttribute('class') || ''} ${e.textContent.trim().slice(0, 40)}`;
const shown = e => e.checkVisibility() && e.getBoundingClientRect().width > 1;
const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
const report = (what, elements) => elements.forEach(e => found.push(`${what}: ${name(e)}`));

if (Math.max(root.scrollWidth, document.body.scrollWidth) > room) {
  const boxed = e => e && e !== document.body && (scrolls(e) || boxed(e.parentElement));
  found.push(`the page scrolls sideways: ${root.scrollWidth} px wide, room for ${room}`);
  report('too wide', [...document.body.querySelectorAll('*')].filter(
    e => e.getBoundingClientRect().right > room + 1 && !boxed(e.parentElement)).slice(0, 5));
}

const edge = article.getBoundingClientRect().right + 1;
const kinds = 'table, pre, code, img, svg, mjx-container, div.math, iframe, video, .cell_output, .output';
report('out of the column or cut off, without a box that scrolls',
  [...article.querySelectorAll(kinds)].filter(shown).filter(e => {
    for (let box = e; box !== article; box = box.parentElement) if (scrolls(box)) return false;
    const block = !getComputedStyle(e).display.startsWith('inline') && !e.closest('svg, mjx-container');
    return block && e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > edge;
  }));

const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode, raw = text.data.match(/\\[(\[].{0,40}|\$[^$\s][^$]*\$/);
  if (raw && !text.parentElement.closest('pre, code, script, style, mjx-container')) found.push(`raw TeX: ${raw[0]}`);
}
report('formula not drawn', [...document.querySelectorAll('.math')].filter(
  e => e.querySelectorAll('mjx-container').length !== 1));
report('formula with an error', [...document.querySelectorAll('mjx-merror, [data-mjx-error]')]);
report('picture missing', [...document.images].filter(e => !e.complete || !e.naturalWidth));
return found;
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
for (const drawing of document.querySelectorAll('mjx-math')) drawing.replaceChildren();
"""

# What axe-core calls serious or critical hinders somebody. Its rules on colours are asked in both schemes, the others
# once, in phone width.
AUDIT = """
const [options, done] = arguments;
axe.run({resultTypes: ['violations'], preload: false, ...options}).then(found => done(found.violations
  .filter(rule => ['serious', 'critical'].includes(rule.impact))
  .flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`))),
  error => done([String(error)]));
"""
AUDITS = {"dark": {"runOnly": ["color-contrast", "link-in-text-block"]}, "light": {}}


def audit(browser):
    """Require that axe-core finds nothing on the page, in either scheme."""
    browser.execute_script(THIN + AXE.read_text(encoding="utf-8"))
    for scheme, options in AUDITS.items():
        turn(browser, scheme)
        assert browser.execute_async_script(AUDIT, options) == [], scheme


def turn(browser, scheme):
    """The reader's system turns light or dark, without movement on the page."""
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    media = [{"name": name, "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    browser.execute_async_script(TURNED, scheme)


def logged(browser) -> tuple[set[str], list[str]]:
    """Addresses that were asked for since the last call, and what failed or was an error in the console."""
    asked, failed = set(), []
    for entry in browser.get_log("performance"):
        event = json.loads(entry["message"])["message"]
        method, params = event["method"], event["params"]
        if method == "Network.requestWillBeSent":
            asked.add(params["request"]["url"].split("#")[0])
        elif method == "Network.responseReceived" and params["response"]["status"] >= 400:
            failed.append(f"{params['response']['status']} {params['response']['url']}")
        elif method == "Network.loadingFailed":
            failed.append(f"{params['errorText']} {params.get('blockedReason', '')} {params['type']}")
    return asked, failed + [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def check(browser, address: str) -> None:
    """Visit a page and see that all is well."""
    size(browser, WIDTHS[0])
    turn(browser, "light")
    logged(browser)  # of the page before
    browser.get(address)
    settle(browser)
    wrong = []
    for width in WIDTHS:
        size(browser, width)
        for scheme in SCHEMES:
            turn(browser, scheme)
            wrong += [f"{width} px, {scheme}: {what}" for what in browser.execute_script(LOOK)]
    asked, failed = logged(browser)
    server = address.partition("/html")[0]
    assert [url for url in asked if not url.startswith((f"{server}/", "data:", "chrome://"))] == []
    assert len(asked) > 10 and failed == [] and wrong == []
    audit(browser)


@pytest.mark.slow  # 70 pages in two languages, each looked at in four ways and audited: ten minutes
@pytest.mark.parametrize("language", ["html", "chinese"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page(browser, site, request, language, page):
    check(browser, f"{site}/{request.getfixturevalue(language).name}/{page}")


@pytest.mark.parametrize("document", ["book/3-thor/inverse", "book/1-cifar10/network", "labs/cifar10/lab"])
def test_a_page_opened_as_a_file_needs_no_server(browser, html, document):
    check(browser, (html / f"{document}.html").as_uri())


# -- Search, and the reader's language -----------------------------------------------------------------

FOUND = """
return [...document.querySelectorAll('#search-results ul.search > li > a')].map(
  link => link.getAttribute('href').split(/[?#]/)[0]);
"""

SUMMARIES = """
const summaries = [...document.querySelectorAll('#search-results p.context')].map(summary => summary.textContent);
return summaries.length > 2 ? summaries : null"""


@pytest.mark.parametrize(("folder", "words", "page"), [
    ("html", "natural gradient", "book/3-thor/natural-gradient.html"),
    ("html", "CrossEntropySmooth", "book/appendix/api/train.html"),
    ("html-zh_CN", "学习率", "book/1-cifar10/schedules.html"),
    ("html-zh_CN", "残差", "book/1-cifar10/network.html"),
])  # fmt: skip
def test_search_finds_the_page(browser, site, html, chinese, folder, words, page):
    for address in (f"{site}/{folder}", (html.parent / folder).as_uri()):
        browser.get(f"{address}/search.html?q={words.replace(' ', '+')}")
        WebDriverWait(browser, 30).until(lambda here: page in here.execute_script(FOUND))


def test_search_quotes_the_text_and_fits_a_phone(browser, site):
    """A page's header, contents and formula marks are not its text."""
    size(browser, 390)
    browser.get(f"{site}/html/search.html?q=natural+gradient")
    summaries = WebDriverWait(browser, 30).until(lambda here: here.execute_script(SUMMARIES))
    assert not [text for text in summaries if "Contents" in text or "\\(" in text]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390


def test_the_front_page_is_shown_in_the_readers_language(browser, html, chinese):
    """Until the reader chooses one; other pages stay as they are."""

    def opened(path, language):
        agent = browser.execute_script("return navigator.userAgent")
        asked = {"userAgent": agent, "acceptLanguage": language}
        browser.execute_cdp_cmd("Emulation.setUserAgentOverride", asked)
        browser.get(path.as_uri())
        settle(browser)
        return browser.execute_script("return document.documentElement.lang")

    assert opened(html / "book/index.html", "zh-CN") == "zh-CN"
    assert opened(html / "book/1-cifar10/data.html", "zh-CN") == "en"
    assert opened(html / "book/index.html", "en-US") == "en"
    assert opened(chinese / "book/1-cifar10/data.html", "en-US") == "zh-CN"
    browser.find_element("css selector", ".other-language").click()
    assert opened(html / "book/index.html", "zh-CN") == "en"
    browser.execute_script("localStorage.removeItem('language')")


# -- Questions -----------------------------------------------------------------------------------------

# Where the focus is among the first question's choices, which of them are open, and what the heading counts.
ASKED = """
const question = document.querySelector('.question'), choices = [...question.querySelectorAll('.choice')];
const open = choices.filter(choice => choice.open && choice.lastElementChild.innerText.trim());
return [choices.findIndex(choice => choice.firstElementChild === document.activeElement),
  open.map(choice => choices.indexOf(choice)), choices.findIndex(choice => choice.classList.contains('right')),
  question.parentElement.querySelector('h2').dataset.progress[0], choices.length];
"""


def test_choices_are_explained_by_keyboard_and_kept_in_both_languages(browser, site, html, chinese):
    def pressed(*keys):
        ActionChains(browser).send_keys(*keys).perform()
        return browser.execute_script(ASKED)

    def seen(folder):
        browser.get(f"{site}/{folder.name}/book/1-cifar10/network.html")
        settle(browser)

    seen(html)
    browser.execute_script("localStorage.clear()")
    seen(html)
    focus, opened, right, counted, count = pressed()
    assert opened == [] and counted == "0" and count > 2
    while focus != 0:
        focus = pressed(Keys.TAB)[0]
    for choice in range(count):
        pressed(Keys.ENTER if choice % 2 else Keys.SPACE)
        WebDriverWait(browser, 10).until(lambda here: here.execute_script(ASKED)[3] == str(int(choice == right)))  # noqa: B023
        assert browser.execute_script(ASKED)[:2] == [choice, [choice]]
        pressed(Keys.TAB)
    for folder in (html, chinese):
        seen(folder)
        assert pressed()[1] == [count - 1]
        audit(browser)
    browser.execute_script("localStorage.clear()")
