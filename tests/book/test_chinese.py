"""The Chinese pages: nothing left in English, the browser tests of the English ones, search, languages, and print."""

import re
import unicodedata

import pdf
import pytest
from bs4 import BeautifulSoup
from chapters import REPO, documents
from pypdf import PdfReader
from selection import require
from selenium.webdriver.support.ui import WebDriverWait

# The same tests, of other pages.
# ruff: noqa: F811
from test_browser import (  # noqa: F401
    place,
    seen,
    site,
    test_accessible,
    test_code_is_read_without_scrolling,
    test_formulas_are_drawn,
    test_no_request_leaves_the_site,
    test_nothing_fails,
    test_page_fits,
    test_page_is_light,
    visit,
)

pytestmark = pytest.mark.browser
LANGUAGE = "zh_CN"
HAN = re.compile("[\u3001-\u303f\u4e00-\u9fff]")  # with punctuation
CONFIG = "return document.documentElement.lang"
# What is English on Chinese pages as well: docstrings, help, references; code and what it printed or drew.
ENGLISH = re.compile("book/appendix/(api/.*|cli|references)")
CODE = "pre, code, script, style, mjx-container, .math, .cell_output"
FOUND = "return document.querySelectorAll('#search-results ul.search > li a').length"


@pytest.fixture(scope="module")
def html():
    """Folder of the Chinese pages."""
    require("Chinese font")
    folder = REPO / "_build" / f"html-{LANGUAGE}"
    if not (folder / "index.html").exists():
        pytest.fail("not built: run `make book BOOK_LANGUAGE=zh_CN` (`make test` does)", pytrace=False)
    return folder


@pytest.fixture(scope="module")
def browser(browser):
    """That of a Chinese reader: the front page is shown in the browser's language."""
    speak(browser, "zh-CN")
    return browser


def speak(browser, language):
    agent = browser.execute_script("return navigator.userAgent")
    asked = {"userAgent": agent, "acceptLanguage": language}
    browser.execute_cdp_cmd("Emulation.setUserAgentOverride", asked)


@pytest.mark.parametrize("document", [one for one in documents() if not ENGLISH.fullmatch(one)])
def test_no_text_is_left_in_english(html, document):
    """Every paragraph, heading, item and cell of a table with four words or more has Chinese ones."""
    page = BeautifulSoup((html / f"{document}.html").read_text(encoding="utf-8"), "html.parser")
    assert page.html["lang"] == "zh-CN"
    # The frames of a film have the words of their cell.
    alternatives = [picture.get("alt", "") for picture in page.article.select("img:not(.frame)")]
    for tag in page.article.select(CODE):
        tag.decompose()
    texts = [tag.get_text() for tag in page.article.select("p, h1, h2, h3, h4, li, td, th, figcaption, summary")]
    texts += [tag.get_text() for tag in page.select("nav.bd-links .caption-text, nav.bd-links a")]
    texts += alternatives
    assert [text for text in texts if len(re.findall("[A-Za-z]{2,}", text)) > 3 and not HAN.search(text)] == []


@pytest.mark.parametrize("document", documents())
def test_formulas_are_the_same_but_for_their_words(html, document):
    def formulas(page):
        found = re.findall('<div class="math[^>]*>(.*?)</div>', page, re.S)
        return [re.sub(r"\\text\{[^}]*\}", "", formula) for formula in found]

    chinese, english = ((at / f"{document}.html").read_text("utf-8") for at in (html, REPO / "_build" / "html"))
    assert formulas(chinese) == formulas(english)
    words = re.findall(r"\\text\{([^}]*)\}", chinese)
    assert [word for word in words if re.search("[a-z] |[(][a-z]", word)] == []


def test_the_glossary_is_sorted_by_pinyin(html):
    page = BeautifulSoup((html / "book/appendix/glossary.html").read_text(encoding="utf-8"), "html.parser")
    terms = [re.sub("[（#].*", "", term.get_text(strip=True)) for term in page.select("dl.glossary dt")]
    known = [
        "MindRecord", "标签平滑", "动量", "检查点", "批归一化", "权重衰减",
        "昇腾", "数据并行", "学习率", "预演", "阻尼",
    ]  # fmt: skip
    assert sorted(known, key=terms.index) == known


@pytest.mark.parametrize("document", documents())
def test_each_page_leads_to_itself_in_the_other_language(html, document):
    english = REPO / "_build" / "html"
    for folder, there, language, name in ((html, english, "en", "English"), (english, html, LANGUAGE, "中文")):
        file = folder / f"{document}.html"
        (link,) = BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser").select(".other-language")
        assert (link["data-language"], link.get_text(strip=True)) == (language, name)
        assert (file.parent / link["href"]).resolve() == there / f"{document}.html"


@pytest.mark.parametrize("words", ["学习率", "残差", "二阶优化", "训练作业的日志", "CrossEntropySmooth"])
def test_search(browser, site, words):
    browser.get(f"{site}/search.html?q={words}")
    WebDriverWait(browser, 30).until(lambda here: here.execute_script(FOUND))


def test_the_front_page_is_shown_in_the_readers_language(browser, html):
    """Until the reader chooses one; other pages stay as they are."""

    def opened(path):
        browser.get(path.as_uri())
        WebDriverWait(browser, 30).until(lambda here: here.execute_script("return document.readyState") == "complete")
        return browser.execute_script(CONFIG)

    english = REPO / "_build" / "html"
    try:
        assert opened(english / "book/index.html") == "zh-CN"
        assert opened(english / "book/1-cifar10/data.html") == "en"
        speak(browser, "en-US")
        assert opened(english / "book/index.html") == "en"
        assert opened(html / "book/index.html") == "zh-CN"  # who opens it has chosen it
        assert opened(html / "book/1-cifar10/data.html") == "zh-CN"
        browser.find_element("css selector", ".other-language").click()
        assert browser.execute_script(CONFIG) == "en"
        speak(browser, "zh-CN")
        assert opened(english / "book/index.html") == "en"
    finally:
        browser.execute_script("localStorage.removeItem('language')")
        speak(browser, "zh-CN")


def test_it_is_printed_with_a_font_of_its_own(browser, html, tmp_path):
    """The font is in the file, with the characters that it needs."""
    pdf.write([("Part 1: CIFAR-10", ["book/1-cifar10/index"])], tmp_path / "some.pdf", browser, LANGUAGE)
    reader = PdfReader(tmp_path / "some.pdf")
    text = unicodedata.normalize("NFKC", "".join(page.extract_text() for page in reader.pages))
    assert "目录" in text and "第1部分" in re.sub(r"\s", "", text) and "Contents" not in text
    fonts = [font.get_object() for page in reader.pages for font in page["/Resources"]["/Font"].values()]
    chinese = [font["/FontDescriptor"]["/FontName"] for font in fonts if font["/Subtype"] == "/Type3"]
    assert any("CJK" in name for name in chinese) and all(re.match(r"/[A-Z]{6}\+", name) for name in chinese)  # subsets
    assert (tmp_path / "some.pdf").stat().st_size < 3e6
