"""A notebook's answers, each with only what grading gives it."""

import json

from labkit.system.notebook import run_alone

CELLS = [  # id, metadata, source
    ("cell-001", {}, "%matplotlib inline\nimport math"),
    ("cell-002", {"tags": ["ungraded"]}, "mine = 9.0"),
    ("3fa81c", {}, "def helper(x):\n    return x"),
    ("answer-root", {"answer": "root"}, "def root(x):\n    return math.sqrt(x)"),
    ("cell-003", {"tags": ["ungraded"]}, "# Check\nassert root(mine) == 3\nprint('task 1: ok')"),
    ("answer-leftover", {"answer": "leftover"}, "square = lambda x: x * x\nprint(square(mine))"),
    ("cell-004", {"tags": ["ungraded"]}, "# Check\nprint('task 2: ok')"),
    ("answer-helped", {"answer": "helped"}, "def double(x):\n    return 2 * helper(x)"),
    ("cell-005", {"tags": ["ungraded"]}, "# Check\nprint('task 3: ok', double(1))"),
    ("cell-006", {"tags": ["ungraded"]}, "# Check\nraise AssertionError('a Run has no answer cell')"),
]


def test_an_answer_that_needs_another_cell_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    cells = [{"id": i, "cell_type": "code", "metadata": marks, "source": text} for i, marks, text in CELLS]
    (tmp_path / "lab.ipynb").write_text(json.dumps({"cells": cells}))
    run_alone(tmp_path / "lab.ipynb", {"mine": 9.0, "helper": float, "double": float})
    assert capsys.readouterr().out.splitlines() == [
        "each answer alone:", "task 1: ok", "leftover: NameError: name 'mine' is not defined",
        "helped: NameError: name 'helper' is not defined",
    ]  # fmt: skip
    run_alone(tmp_path / "none.ipynb", {})
    assert "none.ipynb: not done yet; save the notebook" in capsys.readouterr().out
