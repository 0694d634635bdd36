"""The book in Chinese: catalogues that are complete and up to date, and the rules that a translation keeps."""

import sys

import pytest
from sphinx.search.zh import SearchChinese

sys.path.insert(0, "book")
sys.path.insert(0, "book/_ext")

import languages
import translation

from grader import translation as of_labs

LANGUAGE = "zh_CN"
CATALOGUES, TEMPLATES = translation.catalogues(LANGUAGE), translation.templates()
EXCEPTIONS = {("book/4-cloud/console", "number lost: 4")}  # reviewed: North-Beijing4 is a name
ROWS, PARSER = translation.terms(), translation._parser()


def test_nothing_is_left_to_translate_and_nothing_wrong():
    """No message without a translation, or with one for an older text.

    Roles, code, formulas, links and numbers are kept; terms are those of terms.md; punctuation and spaces are Chinese.
    """
    assert [one for one in translation.wrong(LANGUAGE) if (one[0], one[2]) not in EXCEPTIONS] == []


@pytest.mark.parametrize("document", TEMPLATES)
def test_catalogues_are_of_what_the_pages_say(document):
    """A paragraph that has changed since is named here; `make translate` takes it in."""
    said = {message.id for message in TEMPLATES[document] if message.id}
    assert document in CATALOGUES, "no catalogue: `make translate`"
    translated = {message.id for message in translation.messages(CATALOGUES[document])}
    assert not said - translated, "in the page, not in its catalogue"
    assert not translated - said, "in the catalogue, no longer in the page"


def test_a_page_that_changed_since_the_build_loses_no_translation(tmp_path, monkeypatch):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "index.json").write_text('{"source": "of another text", "messages": []}')
    monkeypatch.setattr(translation, "MESSAGES", tmp_path)
    with pytest.raises(SystemExit, match="^book/index.md: changed since the book was built; run `make book` first$"):
        translation.template("book/index")  # not update, which would write if this failed


def test_no_catalogue_without_a_page():
    assert set(CATALOGUES) == set(TEMPLATES)


# -- The rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("english, chinese, wrong", [
    ("See {doc}`practice`.", "见{doc}`practice`。", []),
    ("See {doc}`practice`.", "见{doc}`training`。", ["lost: doc practice", "new: doc training"]),
    ("The {term}`damping` of `x`.", "`x` 的{term}`阻尼 <damping>`。", []),
    ("The {term}`damping`.", "{term}`阻尼`。", ["lost: term damping", "new: term 阻尼"]),
    ("Set `a=1`.", "设置 `a=2`。", ["lost: code_inline a=1", "new: code_inline a=2"]),
    ("With $x^2$.", "用 $x^3$。", ["lost: math_inline x^2", "new: math_inline x^3"]),
    ("In 60 steps, 3.5 s.", "60 步，3.5 秒。", []),
    ("In 60 steps, 3.5 s.", "60 步，5.3 秒。", ["number lost: 3.5", "number new: 5.3"]),
    ("Eight cards.", "8 张卡。", ["number new: 8"]),
    ("**Bold** then.", "**粗体**然后。", []),
    ("**Bold.** Then.", "**粗体。**然后。", ["lost: strong", "asterisks that are no emphasis"]),
    ("A *new term* here.", "这里有个**新词**。", []),
    ("Yes, it is.", "对,是的。", ["half-width punctuation"]),
    ("On a CPU.", "在CPU上。", ["spaces: 在 CPU 上。"]),
    ("30 epochs.", "30 轮次。", ["epoch: 轮次 instead of 轮"]),
    ("1. Data", "1\\. 数据", []),
    ("1. Data", "1. 数据", ["begins a list or a heading: escape it"]),
    ("The batch size.", "批大小。", ["batch size: not 批次大小", "batch size: 批大小 instead of 批次大小"]),
])  # fmt: skip
def test_what_is_wrong_is_named(english, chinese, wrong):
    assert translation.problems(english, chinese, ROWS, PARSER) == wrong


@pytest.mark.parametrize("given, expected", [
    ("放进 {term}`桶 <bucket>` 里", "放进{term}`桶 <bucket>`里"),
    ("在CPU上，见 {doc}`practice` 。", "在 CPU 上，见{doc}`practice`。"),
    ("用`x`和$a$算", "用 `x` 和 $a$ 算"),
    ("{numref}`f`显示，{cite:t}`a2015`的方法", "{numref}`f` 显示，{cite:t}`a2015` 的方法"),
    ("用{term}`Run`做，3倍", "用 {term}`Run` 做，3 倍"),
])  # fmt: skip
def test_spaces(given, expected):
    assert translation.spaced(given) == expected == translation.spaced(expected)


# -- What learners get ---------------------------------------------------------------------------------


def test_markdown_in_another_language():
    """Paragraphs over several lines, lists, headings, tables and summaries; what has no translation stays."""
    catalogue = {
        "A paragraph of two lines.": "一段。", "An item": "一项", "A heading": "标题", "a cell": "一格",
        "Hint": "提示", "Inside it.": "在里面。",
    }  # fmt: skip
    text = "## A heading\n\nA paragraph\nof two lines.\n\n- An item\n- Another\n\n"
    text += "| x | a cell |\n| --- | --- |\n| a cell | 1 |\n\n"
    text += "<details><summary>Hint</summary>\n\nInside it.\n\n</details>"
    assert of_labs.translated(text, catalogue) == (
        "## 标题\n\n一段。\n\n- 一项\n- Another\n\n| x | 一格 |\n| --- | --- |\n| 一格 | 1 |\n\n"
        "<details><summary>提示</summary>\n\n在里面。\n\n</details>"
    )


def test_self_checks_in_another_language():
    """Texts are replaced where they stand, with what they compute; names and keys stay, and the code does the same."""
    source = """\
# Check
yours, expected = 3, {'key': 4}
assert yours == expected["key"], (
    f"one case: expected {expected['key']}, "
    f"yours {yours:.1f}"
)
"""
    texts = [text for _, _, text in of_labs.spoken(source)]
    assert texts == ["one case: expected {expected['key']}, yours {yours:.1f}"]
    found = of_labs.translated_code(source, {texts[0]: "一例：应为 {expected['key']}，你的是 {yours:.1f}"})
    with pytest.raises(AssertionError, match="^一例：应为 4，你的是 3.0$"):
        exec(compile(found, "check", "exec"), {})


def test_a_language_that_the_book_lacks():
    with pytest.raises(of_labs.LabError, match="^labs/thor/lab: not translated into xx; the book is in zh_CN$"):
        of_labs.translations("xx", "labs/thor/lab")


def test_words_are_stemmed_as_by_sphinx():
    """Of all that the messages say; Sphinx's must have seen a Latin word in the text before."""
    ours, theirs = languages.Search({}), SearchChinese({})
    text = " ".join(str(message.id) for template in TEMPLATES.values() for message in template)
    words = set(theirs.split(text))
    theirs.latin_terms = set(theirs.latin_terms)
    assert len(words) > 3000
    assert {word for word in words if ours.stem(word) != theirs.stem(word)} == set()
