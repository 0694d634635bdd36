"""Each entry of the glossary leads to chapters that use its word, and is in use itself."""

import re

import pytest
from chapters import REPO, documents

PAGE = REPO / "book/appendix/glossary.md"


def entries() -> list[tuple[list[str], str]]:
    """(terms, definition): several terms may share one."""
    inside = re.search(r"^```\{glossary\}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)[1]
    found = re.findall(r"((?:^\S.*\n)+)((?:^ {2}.*\n)+)", inside.split("\n\n", 1)[1], re.M)
    return [(terms.split("\n")[:-1], definition) for terms, definition in found]


def chapter(name: str) -> str:
    """Lower-case text of the chapter that a {doc} of the glossary names, hyphens as spaces."""
    path = REPO / f"{name.lstrip('/')}.md" if name.startswith("/") else PAGE.with_name(f"{name}.md")
    return re.sub(r"[-‐]", " ", path.read_text(encoding="utf-8").lower())


ENTRIES = entries()


def test_it_has_the_words_of_the_course():
    terms = [term for found, _ in ENTRIES for term in found]
    assert len(terms) == len(set(terms)) >= 60
    assert {"step", "epoch", "weight decay", "Recipe", "Run", "damping", "ETag", "mutant"} <= set(terms)


@pytest.mark.parametrize(("terms", "definition"), ENTRIES, ids=[terms[0] for terms, _ in ENTRIES])
def test_an_entry_leads_to_a_chapter_that_has_its_word(terms, definition):
    targets = re.findall(r"\{doc\}`([^`<>]+)`", definition)
    assert targets, "leads nowhere"
    texts = [chapter(target) for target in targets]
    words = [re.sub("-", " ", term.lower()) for term in terms]
    assert any(word in text for word in words for text in texts)


def test_chapters_lead_to_it():
    """Some, not all: a handful a chapter, and none that is missing here (Sphinx would warn, and the build fail)."""
    used = {}
    for document in documents():
        text = (REPO / f"{document}.md").read_text(encoding="utf-8")
        used[document] = re.findall(r"\{term\}`(?:[^`<]*<)?([^`<>]+)>?`", text)
    assert sum(map(len, used.values())) >= 60
    assert max(map(len, used.values())) <= 8
    assert not any(used[document] for document in used if document.startswith("labs/"))  # no roles in Jupyter


def test_a_term_makes_an_address_that_scripts_can_use():
    """A dot in it ends the theme's script, which takes it for a selector."""
    assert [term for terms, _ in ENTRIES for term in terms if "." in term] == []
