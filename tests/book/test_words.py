"""The book can be read: no page is too long, and neither is all of it."""

import pytest
from chapters import documents
from prose import count, prose

MOST = {"page": 2_200, "lab 1, from its part's first page to its last task": 9_000, "book, without its labs": 52_000}
FIRST_PART = [document for document in documents() if document.startswith(("book/1-", "labs/cifar10/"))]
BOOK = [document for document in documents() if document.startswith("book/")]


def words(document: str) -> int:
    return count(prose(document))


@pytest.mark.parametrize("document", documents())
def test_a_page_is_not_too_long(document):
    assert words(document) <= MOST["page"]


@pytest.mark.parametrize("pages", [FIRST_PART, BOOK], ids=list(MOST)[1:])
def test_pages_together_are_not_too_long(pages, request):
    assert len(pages) > 7
    assert sum(map(words, pages)) <= MOST[request.node.callspec.id]


def test_only_what_is_read_counts(tmp_path, monkeypatch):
    page = """---
kernelspec: none
---
(anchor)=
# One title

```{code-cell} ipython3
not this
```

```{figure} not-this.svg
:alt: "Not this."

A caption.
```

```{note}
Four words are here.
```

```{code-cell} ipython3
not this
```

:::{dropdown} A question?
An answer:
   ```python
   not_this
   ```
and its end, `x = 1` too.
:::

| a | cell |
| --- | --- |
"""
    monkeypatch.setattr("chapters.REPO", tmp_path)
    (tmp_path / "page.md").write_text(page)
    kept = "One title | A caption | Four words are here | A question | An answer | and its end x 1 too | a cell"
    assert count(prose("page")) == count(kept) == 20
