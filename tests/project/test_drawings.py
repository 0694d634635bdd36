"""The drawings in book/_static: they parse, can be read without eyes, have one style, take nothing from elsewhere."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from labkit import figures

SVG = "{http://www.w3.org/2000/svg}"
PALETTE = {*figures.COLOURS, figures.REFERENCE, figures.INK, figures.PAPER}
PAINTED = re.compile(r"(?<![-\w])(?:color|fill|stroke|stop-color|background(?:-color)?)\s*[:=]\s*\"?([^;\"}]+)")


@pytest.fixture(scope="module")
def drawings(repo_root):
    files = sorted(set((repo_root / "book/_static").glob("*.svg")) - {repo_root / "book/_static/favicon.svg"})
    found = {file.name: file.read_text(encoding="utf-8") for file in files}
    assert len(found) > 5
    return found


def test_each_has_a_title_a_description_and_the_width_of_a_phone(drawings):
    for name, text in drawings.items():
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg" and root.get("viewBox").split()[2] == "360", name
        title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title.text.strip() and len(description.text) > 50, name
        assert root.get("aria-labelledby").split() == [title.get("id"), description.get("id")], name


def test_all_have_one_style_in_the_palette_of_the_figures(drawings):
    styles = {re.search("<style>.*</style>", text, re.S)[0] for text in drawings.values()}
    assert len(styles) == 1
    assert {value.strip() for value in PAINTED.findall(styles.pop())} - {"none", "currentColor", "inherit"} <= PALETTE


def test_nothing_comes_from_elsewhere(drawings):
    for name, text in drawings.items():
        assert not re.search(r"<(script|foreignObject|use)\b|@import|@font-face|xlink|\bon\w+=", text), name
        assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text)), name
        rest = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|\bdata:(?!image/png;base64,)|<image (?!.*data:)|=\"//", rest), name


def test_links_lead_to_chapters(drawings, repo_root):
    """From the page that shows the drawing; one with links is shown as `linked`, or nobody could follow them."""
    for name, text in drawings.items():
        hrefs = [link.get("href") for link in ElementTree.fromstring(text).iter(f"{SVG}a")]
        pages = [*(repo_root / "book").rglob("*.md"), *repo_root.glob("labs/*/lab.md")]
        shown = [page for page in pages if re.search(rf"_static/{name}\)?\n", page.read_text(encoding="utf-8"))]
        assert shown, f"{name} is on no page"
        for page in shown if hrefs else ():
            assert re.search(rf"_static/{name}\n(:[^\n]+\n)*:class: linked\n", page.read_text()), page
            for href in hrefs:
                assert (page.parent / href).with_suffix(".md").is_file(), (name, href)


def test_drawings_have_no_text_below_twelve(drawings):
    """360 wide on a phone of 390: one unit is one pixel."""
    sizes = [int(size) for text in drawings.values() for size in re.findall(r"(?:font-size|font): ?(\d+)px", text)]
    assert min(sizes) >= 12


# Of each text and each rectangle: its words, left, top, right and bottom in the drawing's units. A text without its
# ascenders and descenders, so that lines which follow each other do not touch.
PLACES = """
const svg = document.querySelector('svg'), back = svg.getScreenCTM().inverse();
return ['text', 'rect:not(.paper)'].map(kind => [...svg.querySelectorAll(kind)].map(part => {
    const box = part.getBBox(), matrix = back.multiply(part.getScreenCTM()), trim = kind == 'text' ? 3 : 0;
    const corners = [0, 1].map(end => new DOMPoint(
        box.x + end * box.width, box.y + trim + end * (box.height - 2 * trim)).matrixTransform(matrix));
    const [xs, ys] = [corners.map(corner => corner.x), corners.map(corner => corner.y)];
    return [part.textContent, Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}));
"""


def holds(outer, inner) -> bool:
    return outer[1] <= inner[1] and outer[2] <= inner[2] and inner[3] <= outer[3] and inner[4] <= outer[4]


def crosses(one, other) -> bool:
    return all(max(one[low], other[low]) < min(one[low + 2], other[low + 2]) for low in (1, 2))


def misplaced(texts, rects, size) -> list[str]:
    """Texts that leave the drawing, cross a rectangle's edge, or cross another text."""
    drawing = ["", 0, 0, *size]
    bad = [text[0] for text in texts if not holds(drawing, text)]
    bad += [text[0] for text in texts for rect in rects if crosses(rect, text) and not holds(rect, text)]
    return bad + [f"{one[0]} | {two[0]}" for n, one in enumerate(texts) for two in texts[:n] if crosses(one, two)]


def test_texts_fit_in_a_wide_font_too(drawings, browser, tmp_path):
    """Readers without Helvetica, Arial and Liberation Sans see the drawing in another font; DejaVu Sans is wide."""
    bad = {}
    for name, text in drawings.items():
        page = tmp_path / "drawing.html"
        style = "<style>.drawing text { font-family: 'DejaVu Sans', sans-serif !important }</style>"
        page.write_text(f"<meta charset=utf-8>{style}{text}", encoding="utf-8")
        browser.get(page.as_uri())
        size = [float(number) for number in ElementTree.fromstring(text).get("viewBox").split()[2:]]
        bad[name] = misplaced(*browser.execute_script(PLACES), size)
    assert {name: found for name, found in bad.items() if found} == {}
