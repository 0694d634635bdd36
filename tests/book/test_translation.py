"""The book in Chinese: catalogues that are complete and up to date, and the rules that a translation keeps."""

import re

import pytest
import translation

LANGUAGE = "zh_CN"


@pytest.mark.slow  # fast, but a missing translation must not stop a commit
def test_nothing_is_left_to_translate_and_nothing_wrong(html):
    assert translation.wrong(LANGUAGE) == []
    catalogues, templates = translation.catalogues(LANGUAGE), translation.templates()
    assert set(catalogues) == set(templates)
    for page, path in catalogues.items():  # a paragraph that has changed since: `make translate` takes it in
        assert {message.id for message in translation.messages(path)} == set(templates[page]), page


def test_words_are_found_outside_the_paragraphs():
    """In labels of two letters, in included tables, in comments of shell commands, in the live figures' controls."""
    texts = translation.said_by("book/_static/interactive/*.js")
    assert {"no", "to 10⁻³"} <= set(translation.on_drawings()) and {"Shape", "Play"} <= set(texts)
    scripts = [path.read_text("utf-8") for path in translation.REPO.glob("book/_static/interactive/*.js")]
    sentences = r'(?<!say\()(?<!class: )"(?!use strict)[A-Z]?[a-z]+(?: [a-z]+)+"'
    assert re.findall(sentences, "".join(scripts)) == []


def test_each_thing_has_one_name():
    """No message has a word of the column *not* in the tables of terms.md."""
    lines = (translation.LOCALE / "terms.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    terms = []
    for english, chinese, never, _ in (row for row in rows if len(row) == 4):
        forms = "|".join(map(re.escape, re.sub(r" *\(.*?\)", "", english).split(" / ")))
        terms.append((re.compile(rf"(?<![\w-])({forms})s?(?![\w-])", re.IGNORECASE), chinese, never))
    found = []
    for page, path in translation.catalogues(LANGUAGE).items():
        for message in translation.messages(path):
            english = re.sub(r"\{[\w:-]+\}`[^`<]*`|(`+|\$).*?\1|\]\(.*?\)", "&", message.id)
            matched = [(chinese, never) for pattern, chinese, never in terms if pattern.search(english)]
            text = message.string
            for chinese, _ in matched:
                text = text.replace(chinese, "&")
            words = [word for _, never in matched for word in filter(None, never.split("、")) if word in text]
            found += [(page, word, message.string) for word in words]
    assert found == []


@pytest.mark.parametrize("english, chinese, wrong", [
    ("See {doc}`practice`.", "见{doc}`practice`。", []),
    ("See {doc}`practice`.", "见{doc}`training`。", ["lost: doc practice", "new: doc training"]),
    ("The {term}`damping` of `x`.", "`x` 的{term}`阻尼 <damping>`。", []),
    ("Set `a=1`.", "设置 `a=2`。", ["lost: `a=1`", "new: `a=2`"]),
    ("With $x^2$.", "用 $x^3$。", ["lost: $x^2$", "new: $x^3$"]),
    ("[Here](a.md).", "[这里](b.md)。", ["lost: ](a.md)", "new: ](b.md)"]),
    ("In 60 steps, 3.5 s.", "60 步，5.3 秒。", ["lost: number 3.5", "new: number 5.3"]),
    ("25 million images.", "2500 万张图像。", []),
    ("**Bold.** Then.", "**粗体。**然后。", ["asterisks that are no emphasis"]),
    ("Yes, it is.", "对,是的。", ["half-width punctuation"]),
    ("1. Data", "1. 数据", ["begins a list or a heading: escape it"]),
])  # fmt: skip
def test_what_is_wrong_is_named(english, chinese, wrong):
    assert translation.problems(english, chinese) == wrong


def test_an_update_keeps_translations_and_takes_what_is_new(tmp_path, monkeypatch):
    monkeypatch.setattr(translation, "LOCALE", tmp_path)
    monkeypatch.setattr(translation, "templates", lambda: {"page": ["A paragraph.", "Another."]})
    translation.update("xx")
    (file,) = tmp_path.rglob("*.po")
    empty = 'msgid "Another."\nmsgstr ""'
    text = file.read_text(encoding="utf-8").replace(empty, empty[:-1] + '另一段。"')
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(translation, "templates", lambda: {"page": ["Another.", "A new one, of other words."]})
    translation.update("xx")
    assert {message.id: message.string for message in translation.messages(file)} == {
        "Another.": "另一段。", "A new one, of other words.": "",
    }  # fmt: skip
    monkeypatch.setattr(translation, "templates", dict)
    translation.update("xx")
    assert not file.exists()
