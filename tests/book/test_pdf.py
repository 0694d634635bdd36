"""The printed book: some of its chapters, by the functions with which `make pdf` prints all of them."""

import re
import unicodedata

import pdf
import pytest
from chapters import code_cells, executed, pages
from pypdf import PdfReader
from selection import require

# Long code, figures with folded code, formulas, a figure in steps, wide tables, stubs and hints, references.
CHAPTERS = ["book/index", "labs/cifar10/lab", "book/3-thor/natural-gradient", "book/appendix/references"]


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def write(browser, chapters, file, language=None) -> PdfReader:
    some = [(caption, [document for document in part if document in chapters]) for caption, part in pages.parts()]
    pdf.write(pdf.join([part for part in some if part[1]], language), file, browser)
    return PdfReader(file)


@pytest.fixture(scope="module")
def reader(browser, html, tmp_path_factory) -> PdfReader:
    return write(browser, CHAPTERS, tmp_path_factory.mktemp("pdf") / "some.pdf")


@pytest.fixture(scope="module")
def text(reader) -> str:
    """Without spaces and page numbers."""
    texts = [re.sub(rf"\n?{number}$", "", page.extract_text()) for number, page in enumerate(reader.pages, 1)]
    return squeezed("".join(texts))


def test_links_and_the_contents_lead_into_the_file_or_to_the_web(reader):
    links = [link for page in reader.pages for link in page.annotations or []]
    inside = [link["/Dest"].removeprefix("/") for link in links if "/Dest" in link]
    outside = [link["/A"]["/URI"] for link in links if "/Dest" not in link]
    assert set(inside) <= {name.removeprefix("/") for name in reader.named_destinations}
    assert {*CHAPTERS} <= set(inside) and len(inside) > 20
    assert len(outside) > 10 and all(re.match("https?://", address) for address in outside)


def test_no_line_of_code_or_output_is_missing(text):
    lines = []
    for document in ("labs/cifar10/lab", "book/3-thor/natural-gradient"):
        for cell in code_cells(executed(document)):
            if "remove-input" not in cell.metadata.get("tags", []):
                lines += cell.source.splitlines()
            lines += [line for output in cell.outputs if "text" in output for line in output.text.splitlines()]
    assert len(lines) > 500
    assert [line for line in lines if squeezed(line) not in text] == []


def test_what_is_folded_is_open_and_what_is_clicked_is_gone(text):
    assert squeezed("Write down the rates of three epochs") in text  # a hint
    assert squeezed("does not depend on the coordinates") in text  # a solution
    places = [text.find(f"Step{number}") for number in (0, 1, 2, 3, 5, 12)]
    assert -1 not in places and places == sorted(places)
    for label in ("Show code cell", "Hide code cell", "Open in"):
        assert squeezed(label) not in text
    assert not re.search(r"\\(frac|nabla|theta|lambda|mathbb)", text)


def test_questions_come_without_their_answers_which_are_at_the_end_of_the_page(html):
    (page,) = pdf.BeautifulSoup(pdf.join([("", ["book/1-cifar10/network"])]), "html.parser").select(".chapter")
    questions, answers = page.select(".question"), page.select(".answers > ol > li")
    assert len(questions) == len(answers) >= 3 and not page.select(".question details")
    for question, answer in zip(questions, answers, strict=True):
        choices, explained = question.select("ol > li"), answer.select("ol > li")
        assert len(choices) == len(explained) >= 3 and len(answer.select("li.right")) == 1
    assert page.find_all(["h2", "h3"])[-1].get_text() == "Answers"


@pytest.mark.parametrize("body", [
    '<div style="width: 300mm">wide</div>',
    '<pre style="overflow: hidden; height: 1em">one\ntwo\nthree</pre>',
    '<img src="nowhere.png" alt="">',
    r'<span class="math">\(x\)</span>',
    '<a href="#nowhere">there</a>',
], ids=["too wide", "cut off", "no picture", "no formula", "no target"])  # fmt: skip
def test_what_would_be_lost_is_reported(browser, tmp_path, body):
    page = f'<body><main><section class="chapter" id="some">{body}</section></main></body>'
    with pytest.raises(pdf.Unprintable, match="do not fit or are missing, the first: some: "):
        pdf.write(page, tmp_path / "page.pdf", browser)


def test_chinese_is_printed_with_a_font_of_its_own(browser, chinese, tmp_path):
    require("Chinese font")
    reader = write(browser, ["book/1-cifar10/index"], tmp_path / "some.pdf", "zh_CN")
    text = unicodedata.normalize("NFKC", "".join(page.extract_text() for page in reader.pages))
    assert "目录" in text and "第1部分" in squeezed(text) and "Contents" not in text
    fonts = [font.get_object() for page in reader.pages for font in page["/Resources"]["/Font"].values()]
    assert any("CJK" in font["/FontDescriptor"]["/FontName"] for font in fonts if font["/Subtype"] == "/Type3")
