"""The printed book: some of its chapters, by the function with which `make pdf` prints and checks all of them."""

import io
import re

import build
import pdf
import pytest
from bs4 import BeautifulSoup
from chapters import REPO, code_cells, executed, is_notebook
from pypdf import PdfReader

pytestmark = pytest.mark.browser

# Long code, figures with folded code, formulas, a figure in steps, wide and long tables, stubs and hints, commands,
# references.
CHAPTERS = [
    "book/index",
    "book/1-cifar10/training",
    "labs/cifar10/lab",
    "book/2-migration/operators",
    "book/3-thor/natural-gradient",
    "book/appendix/cli",
    "book/appendix/references",
]
MARGIN, TOP, FOOT = 51, 780, 45  # points: beside the text, above it (running heads), below it (page numbers)
CONTENTS = 1  # its page, the first being 0


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def title(document: str) -> str:
    return re.search(r"^# (.+)$", (REPO / f"{document}.md").read_text(encoding="utf-8"), re.M)[1].replace("`", "")


@pytest.fixture(scope="module")
def parts():
    some = [(caption, [document for document in found if document in CHAPTERS]) for caption, found in build.parts()]
    return [part for part in some if part[1]]


@pytest.fixture(scope="module")
def reader(browser, html, parts, tmp_path_factory) -> PdfReader:
    file = tmp_path_factory.mktemp("pdf") / "some.pdf"
    pdf.write(parts, file, browser)
    return PdfReader(file)


@pytest.fixture(scope="module")
def pieces(reader) -> list[list[dict]]:
    """The pieces of text of each page: text, font, size, and x and y from the paper's lower left corner, in points."""

    def of(page):
        found = []

        def keep(text, place, within, font, size):
            x, y = within[4] * place[0] + place[4], within[5] * place[3] + place[5]
            name = font["/BaseFont"] if font and "/BaseFont" in font else "MathJax"
            if text.strip():
                found.append({"text": text, "font": name, "size": size * place[0], "x": x, "y": y})

        page.extract_text(visitor_text=keep)
        return found

    return [of(page) for page in reader.pages]


@pytest.fixture(scope="module")
def texts(pieces) -> list[str]:
    """The text of each page, without spaces and without what stands in the margins."""
    return [squeezed("".join(piece["text"] for piece in page if FOOT < piece["y"] < TOP)) for page in pieces]


@pytest.fixture(scope="module")
def text(texts) -> str:
    return "".join(texts)


def outline(entries) -> list:
    """(title, [what is below it]) of each entry of an outline."""
    found = []
    for entry in entries:
        if isinstance(entry, list):
            found[-1][1].extend(outline(entry))
        else:
            found.append((re.sub(r"^[\d.]+ ", "", entry.title), []))
    return found


def test_outline_has_parts_with_their_chapters(reader, parts):
    found = dict(outline(reader.outline))
    for caption, printed in parts:
        chapters = [name for name, _ in found[caption]] if caption else list(found)
        assert set(chapters) >= set(map(title, printed))
    sections = dict(found["Part 3: THOR"])[title("book/3-thor/natural-gradient")]
    assert ("Newton’s step", []) in sections


def test_contents_name_the_pages(reader, pieces):
    contents = reader.pages[CONTENTS].extract_text()
    for document in CHAPTERS:
        number = int(re.search(re.escape(title(document)) + r"\s*(\d+)$", contents, re.M)[1])
        largest = max(piece["size"] for piece in pieces[number - 1])
        heading = "".join(piece["text"] for piece in pieces[number - 1] if piece["size"] == largest)
        assert squeezed(title(document)) in squeezed(heading)


def test_pages_are_a4_and_numbered(reader, pieces):
    assert 40 < len(pieces) < 100
    for number, page in enumerate(reader.pages, 1):
        assert [round(float(side) / 72 * 25.4) for side in page.mediabox[2:]] == [210, 297]
        foot = [piece["text"] for piece in pieces[number - 1] if piece["y"] < FOOT]
        assert foot == ([str(number)] if number > 1 else [])


def test_links_lead_into_the_file_or_to_the_web(reader, parts):
    links = [link for page in reader.pages for link in page.annotations or []]
    inside = {link["/Dest"] for link in links if "/Dest" in link}
    outside = {link["/A"]["/URI"] for link in links if "/Dest" not in link}
    assert inside <= set(reader.named_destinations)
    assert [address for address in outside if not re.match("https?://", address)] == []
    found = {link["href"] for link in BeautifulSoup(pdf.join(parts)[0], "html.parser").select("a[href]")}
    assert len(inside) > 20 and len(inside) == len([address for address in found if address.startswith("#")])
    assert len(outside) > 10 and outside == {address for address in found if not address.startswith("#")}


def test_a_citation_leads_to_the_references(reader):
    targets, numbers = reader.named_destinations, pdf.page_numbers(reader)
    first = numbers["book/3-thor/natural-gradient"]
    found = [
        reader.get_destination_page_number(targets[link["/Dest"]]) + 1
        for page in reader.pages[first - 1 : numbers["book/appendix/references"] - 1]
        for link in page.annotations or []
        if "/Dest" in link and "references" in link["/Dest"]
    ]
    assert found and min(found) >= numbers["book/appendix/references"]


def test_no_line_of_code_or_output_is_missing(text):
    lines = []
    for document in filter(is_notebook, CHAPTERS):
        for cell in code_cells(executed(document)):
            if "remove-input" not in cell.metadata.get("tags", []):
                lines += cell.source.splitlines()
            lines += [line for output in cell.outputs if "text" in output for line in output.text.splitlines()]
    assert any(len(line) > 120 for line in lines), "no line is longer than the paper is wide"
    assert [line for line in lines if squeezed(line) not in text] == []


def test_code_longer_than_the_paper_is_wide_is_wrapped(browser, tmp_path):
    lines = [f"{number:03}" * 50 for number in range(25)]
    style = f'<link rel="stylesheet" href="{(REPO / "book" / "print.css").as_uri()}">'
    page = f"<head>{style}</head><body><main><pre>{chr(10).join(lines)}</pre></main></body>"
    reader = PdfReader(io.BytesIO(pdf.printed(page, tmp_path / "page.html", browser)))
    text = squeezed("".join(page.extract_text() for page in reader.pages))
    assert [line for line in lines if line not in text] == []


def test_text_stays_between_the_margins(pieces):
    right = 210 / 25.4 * 72 - MARGIN + 1
    for page in pieces:
        assert [piece for piece in page if not MARGIN - 1 <= piece["x"] <= right] == []
        code = [piece for piece in page if "Mono" in piece["font"]]
        ends = [(piece["text"], piece["x"] + 0.6 * piece["size"] * len(piece["text"].rstrip())) for piece in code]
        assert [end for end in ends if end[1] > right] == []


def test_code_is_coloured_without_an_element_for_each_word(reader):
    """Each would be an object of the file: 108,000 in the whole book, two thirds of its bytes."""
    objects = [found for found in map(reader.get_object, reader.xref[0]) if isinstance(found, dict)]
    assert 0 < [found.get("/S") for found in objects].count("/NonStruct") < 80 * len(reader.pages)
    colours = set()

    def keep(operator, operands, *_):
        if operator == b"rg":
            colours.add(tuple(round(255 * float(part)) for part in operands))

    for page in reader.pages:
        page.extract_text(visitor_operand_before=keep)
    assert colours >= {(0x67, 0x30, 0xC5), (0x00, 0x62, 0x2F), (0x7F, 0x47, 0x07)}  # keywords, strings, numbers


def test_a_long_table_repeats_its_head(browser, tmp_path):
    rows = "".join(f"<tr><td>{number}</td></tr>" for number in range(100))
    article = BeautifulSoup(f"<article><h1>A</h1><table><tr><th>head</th></tr>{rows}</table></article>", "html.parser")
    _, text = pdf.chapter("a", article.article, {"a"})
    printed = PdfReader(io.BytesIO(pdf.printed(f"<body><main>{text}</main></body>", tmp_path / "page.html", browser)))
    assert len(printed.pages) > 1
    assert ["head" in page.extract_text() for page in printed.pages] == [True] * len(printed.pages)


def test_a_figure_in_steps_names_them(text):
    places = [text.find(f"Step{number}") for number in (0, 1, 2, 3, 5, 12)]
    assert -1 not in places and places == sorted(places)


def test_references_stand_beside_their_labels(pieces):
    notes = [piece["x"] for page in pieces for piece in page if piece["text"].startswith("Cited in")]
    assert len(notes) > 20 and min(notes) > MARGIN + 60


def test_contents_of_a_page_keep_their_words(reader):
    first = pdf.page_numbers(reader)["book/appendix/cli"]
    assert squeezed("compare convert doctor") in squeezed(reader.pages[first - 1].extract_text())


def test_formulas_are_drawn(pieces, text):
    assert not re.search(r"\\(frac|nabla|theta|lambda|mathbb)", text)
    signs = {piece["text"].strip() for page in pieces for piece in page if piece["font"] == "MathJax"}
    assert signs >= set("∇∑=−")


def test_no_heading_stands_at_the_foot_of_a_page(pieces):
    for page in pieces[CONTENTS + 1 :]:
        between = [piece for piece in page if FOOT < piece["y"] < TOP]
        lowest = min(between, key=lambda piece: piece["y"], default={"size": 0})  # 0: a picture and nothing else
        assert lowest["size"] < 11 or "MathJax" in lowest["font"], lowest  # a formula may be the last


def test_a_caption_stands_with_its_picture(reader, texts, html):
    captions = 0
    for document in CHAPTERS:
        page = BeautifulSoup((html / f"{document}.html").read_text(encoding="utf-8"), "html.parser")
        for caption in page.select("article figure:has(img[src$='.png']) .caption-number"):
            numbered = squeezed(caption.get_text() + caption.find_next_sibling().get_text()[:20])
            (found,) = [number for number, text in enumerate(texts) if numbered in text]
            assert "/XObject" in reader.pages[found]["/Resources"], numbered
            captions += 1
    assert captions > 10


def test_what_is_folded_is_open_and_what_is_clicked_is_gone(reader, text):
    assert squeezed("Write down the rates of three epochs") in text  # a hint
    assert squeezed("does not notice this change of coordinates") in text  # a solution
    assert squeezed("Code of the above") in text
    for label in ("Show code cell", "Hide code cell", "Download as", "Open in"):
        assert squeezed(label) not in text


@pytest.mark.parametrize(
    "body",
    [
        '<div style="width: 300mm">wide</div>',
        '<pre style="overflow: hidden; height: 1em">one\ntwo\nthree</pre>',
        '<img src="nowhere.png" alt="">',
        r'<span class="math">\(x\)</span>',
        '<a href="#nowhere">there</a>',
    ],
    ids=["too wide", "cut off", "no picture", "no formula", "no target"],
)
def test_what_would_be_lost_is_told(browser, tmp_path, body):
    page = f'<body><main><section class="chapter" id="some">{body}</section></main></body>'
    with pytest.raises(pdf.Unprintable, match="do not fit or are missing, the first: some: "):
        pdf.printed(page, tmp_path / "page.html", browser)


def test_a_wide_table_shrinks(browser, tmp_path):
    cells = [f"{number}-" * 3 for number in range(100, 120)]
    table = "".join(f"<td>{cell}</td>" for cell in cells)
    page = f"<body><main><table><tr>{table}</tr></table></main></body>"
    printed = PdfReader(io.BytesIO(pdf.printed(page, tmp_path / "page.html", browser)))
    assert squeezed(printed.pages[0].extract_text()) == "".join(cells)


def test_a_page_that_is_not_there_is_named(tmp_path):
    with pytest.raises(pdf.Unprintable, match=r"nothing\.html is missing: run `make book`"):
        pdf.join([("", ["book/nothing"])])


def test_a_file_that_leads_nowhere_is_told(browser, tmp_path):
    data = pdf.printed('<h1>A</h1><a href="b.html">to b</a>', tmp_path / "page.html", browser)
    reader = PdfReader(io.BytesIO(data))
    with pytest.raises(pdf.Unprintable, match="page 1: a link leads nowhere: file://.*b.html"):
        pdf.check(reader, ["A"])
    with pytest.raises(pdf.Unprintable, match="not in the outline: C"):
        pdf.check(reader, ["A", "C"])


def test_a_drawing_keeps_what_it_is_drawn_with(html):
    """Its colours, and the arrowheads that it refers to: without them it is black."""
    _, text = pdf.chapter("book/index", pdf.read("book/index").article, set(CHAPTERS))
    drawing = BeautifulSoup(text, "html.parser").select_one("svg.drawing")
    assert drawing.style is not None
    named = set(re.findall(r"url\(#([\w-]+)\)", str(drawing)))
    assert named and named <= {tag["id"] for tag in drawing.find_all(id=True)}
