"""The index of symbols is complete, and true of labkit and of the chapters."""

import importlib
import inspect
import re

import pytest
from chapters import REPO, documents, learners_version

PAGE = REPO / "book/appendix/symbols.md"
GREEK = "alpha beta gamma delta Delta epsilon varepsilon eta theta kappa lambda mu nu pi rho sigma phi omega ell"
GREEK = frozenset(re.findall(r"\w+", GREEK))
FENCED = re.compile(r"^( *)(`{3,})([^`\n]*)\n(.*?)^\1\2 *$", re.S | re.M)
WORD = r"\\(?:text|texttt|mathrm|operatorname|begin|end|mathsf)\{[^}]*\}"


def rows() -> list[tuple[str, str, str]]:
    """(symbols, names in labkit, chapter) of each row of the tables with five columns."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| $")]
    return [(row[0].strip(), row[3], re.search("`(.+)`", row[4])[1]) for row in cells if len(row) == 5]


def prose(text: str) -> str:
    """Markdown without code; of a code cell its options, which have a figure's caption, and of a directive all."""

    def kept(match):
        info, body = match[3], match[4]
        if info.startswith("{code-cell}"):
            return body.split("\n---\n")[0] if body.startswith("---\n") else ""
        return prose(body) if info.startswith("{") else ""

    return re.sub(r"`[^`\n]*`", "", FENCED.sub(kept, text))


def tokens(mathematics: str) -> list[str]:
    r"""Of a formula: \text{...} and its like, \commands, and single characters."""
    return re.findall(rf"{WORD}|\\[A-Za-z]+|\S", mathematics)


def formulas(document: str) -> list[list[str]]:
    """The formulas of a chapter, in tokens."""
    text = prose(learners_version.text_of(REPO / f"{document}.md"))
    return [tokens(block or inline) for block, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", text, re.S)]


def letters(found: list[list[str]]) -> set[str]:
    """The Latin letters of formulas, and the names of their Greek ones."""
    single = {token.removeprefix("\\") for formula in found for token in formula}
    return {token for token in single if token in GREEK or re.fullmatch("[A-Za-z]", token)}


ROWS = rows()
NAMES = sorted({name for _, names, _ in ROWS for name in re.findall("`(.+?)`", names)})


@pytest.mark.parametrize(("symbols", "chapter"), sorted({(symbols, chapter) for symbols, _, chapter in ROWS}))
def test_a_symbol_stands_in_its_chapter(symbols, chapter):
    there = formulas(chapter.lstrip("/"))
    for symbol in re.findall(r"\$(.+?)\$", symbols):
        wanted = tokens(symbol)
        size = len(wanted)
        assert any(wanted == formula[i : i + size] for formula in there for i in range(len(formula))), symbol


@pytest.mark.parametrize("name", NAMES)
def test_a_name_stands_in_labkit(name):
    """module.function, module.Class.attribute, and module.function(argument)."""
    path, _, argument = name.rstrip(")").partition("(")
    module, _, attribute = path.partition(".")
    found = importlib.import_module(f"labkit.{module}")
    owner = found
    for part in attribute.split("."):
        if inspect.ismodule(found) and not hasattr(found, part):
            found = importlib.import_module(f"{found.__name__}.{part}")
        elif inspect.isclass(found) and not hasattr(found, part):  # set in __init__, or a field of a data class
            assert re.search(rf"^\s+(self\.)?{part}(:|\b[^=\n]*=)", inspect.getsource(found), re.M), name
        else:
            owner, found = found, getattr(found, part)
    if argument:
        assert argument in inspect.signature(found).parameters, f"{name}: {owner} has no such argument"


def test_every_letter_of_a_formula_is_in_the_index():
    indexed = letters(formulas("book/appendix/symbols"))
    missing = {}
    for document in documents():
        if document.startswith(("book/1", "book/2", "book/3", "book/4", "labs/")):
            missing[document] = letters(formulas(document)) - indexed
    assert {document: found for document, found in missing.items() if found} == {}
    assert sum(bool(formulas(document)) for document in missing) > 15  # formulas were found at all
