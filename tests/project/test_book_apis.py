"""Names of MindSpore, PyTorch and labkit that the book's prose uses exist in what is installed.

Inline code such as `nn.Momentum` is read with the customary short names. What code cells use is not asked for here: the
build executes them, and the table of names that changed is compared with its reference.
"""

import re
from pathlib import Path
from pydoc import locate

import pytest

import labkit  # noqa: F401 - settles the environment before MindSpore is imported

REPO = Path(__file__).resolve().parents[2]
CHAPTERS = sorted([*REPO.glob("book/**/*.md"), *REPO.glob("labs/*/*.md")])
# What `nn.Momentum` and the like mean in prose.
CUSTOMARY = {
    "mindspore": "mindspore",
    "ms": "mindspore",
    "nn": "mindspore.nn",
    "ops": "mindspore.ops",
    "ds": "mindspore.dataset",
    "vision": "mindspore.dataset.vision",
    "transforms": "mindspore.dataset.transforms",
    "torch": "torch",
    "torchvision": "torchvision",
    "labkit": "labkit",
}
DOTTED = rf"(?:{'|'.join(CUSTOMARY)})(?:\.[A-Za-z_]\w*)+"


def names_in_prose(text: str) -> set[str]:
    """Full names in inline code; code blocks and file names are left out."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.M | re.S)
    found = set()
    for code in re.findall(r"`([^`\n]+)`", text):
        for match in re.finditer(r"(?<![\w./-])" + DOTTED + r"(?![\w/])", code):
            if match[0].endswith((".md", ".py", ".yaml")):
                continue
            first, _, rest = match[0].partition(".")
            found.add(f"{CUSTOMARY[first]}.{rest}")
    return found


@pytest.fixture(scope="module")
def named():
    """Pairs of a chapter and a name in it; without those that original-code.md calls gone."""
    text = (REPO / "book/appendix/original-code.md").read_text(encoding="utf-8")
    gone = set(re.findall(r'"([\w.]+)": ', re.search(r"^GONE = {(.*?)^}", text, flags=re.M | re.S)[1]))
    return {(path.relative_to(REPO).as_posix(), name) for path in CHAPTERS
            for name in names_in_prose(path.read_text(encoding="utf-8")) - gone}  # fmt: skip


def missing(named, torch):
    """The pairs whose names do not exist: those of PyTorch, or the others."""
    return {pair for pair in named if pair[1].startswith("torch") == torch and locate(pair[1]) is None}


def test_names_exist(named):
    """An empty list would pass as well, so the book has to name many."""
    assert missing(named, torch=False) == set()
    assert len({name for _, name in named}) > 40


def test_pytorchs_names_exist(named, pytorch):
    assert missing(named, torch=True) == set()
