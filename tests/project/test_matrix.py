"""tests/matrix.py: which Python a cell gets, what becomes of its result, and what stays of the others."""

import sys

import pytest

from labkit.system.versions import MINDSPORE, MINDSPORES, PYTHONS, series_of
from tests import matrix

PASSED = (True, ("1,900", "0", "3", "200 s"))
FAILED = (False, ("1,898", "2", "3", "200 s"))
FIRST, SECOND, *_ = matrix.CELLS


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Environments and table of its own, no Python that this machine may have."""
    monkeypatch.setattr(matrix, "FOLDER", tmp_path / "matrix")
    monkeypatch.setattr(matrix, "TABLE", tmp_path / "matrix.md")
    monkeypatch.setattr(matrix, "commit", lambda: "abc1234")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for series in PYTHONS:
        monkeypatch.delenv(f"PYTHON_{series.replace('.', '_')}", raising=False)


def put_python(file, version):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho {version}\n" if version else "#!/bin/sh\nexit 127\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def run(monkeypatch, capsys):
    """Function that runs the matrix with results in the place of tests; returns status, output and the cells run."""

    def run(results, *chosen):
        ran = []

        def run_cell(name, python):
            ran.append(name)
            return results[name]

        monkeypatch.setattr(matrix, "run_cell", run_cell)
        monkeypatch.setattr(matrix, "find_python", lambda series: (f"python{series}", f"{series}.9"))
        return matrix.main(list(chosen)), "".join(capsys.readouterr()), ran

    return run


def test_every_supported_version_is_in_a_cell():
    cells = matrix.CELLS.values()
    assert {python for python, _ in cells} == set(PYTHONS)
    assert {series_of(mindspore) for _, mindspore in cells} == set(MINDSPORES)
    assert MINDSPORE in {mindspore for _, mindspore in cells}


def test_a_failing_cell_stops_no_other(run):
    results = dict.fromkeys(matrix.CELLS, PASSED) | {FIRST: FAILED}
    status, said, ran = run(results)
    assert status == 1 and ran == list(matrix.CELLS)
    assert said.count("passed  1,900") == len(ran) - 1 and "FAILED  1,898 passed, 2 failed, 3 skipped, 200 s" in said
    table = matrix.TABLE.read_text().splitlines()
    assert len(table) == len(matrix.HEAD.splitlines()) + len(ran)
    python, mindspore = matrix.CELLS[FIRST]
    assert table[4].startswith(f"| {python}.9 | {mindspore} | 1,898 | 2 | 3 | 200 s | 20")
    assert table[4].endswith(" | abc1234 |")


def test_rows_of_cells_that_were_not_run_stay(run):
    assert run(dict.fromkeys(matrix.CELLS, PASSED))[0] == 0
    before = matrix.TABLE.read_text().splitlines()
    assert run({SECOND: FAILED}, SECOND)[::2] == (1, [SECOND])
    after = matrix.TABLE.read_text().splitlines()
    assert [new for old, new in zip(before, after, strict=True) if old != new] == [matrix.rows()[SECOND]]
    assert "| 1,898 | 2 |" in matrix.rows()[SECOND]


def test_a_cell_without_an_environment(run):
    status, said, _ = run({FIRST: (False, ("no environment", "", "", ""))}, FIRST)
    assert status == 1 and "FAILED  no environment" in said and "| no environment |" in matrix.rows()[FIRST]


def test_a_name_that_is_no_cell(run):
    status, said, ran = run({}, "3.9-2.8.0")
    assert (status, ran) == (2, []) and "no cell 3.9-2.8.0" in said and all(name in said for name in matrix.CELLS)


def test_a_missing_python_is_named(capsys):
    status, said = matrix.main([FIRST]), "".join(capsys.readouterr())
    python, _ = matrix.CELLS[FIRST]
    assert status == 1 and f"no Python {python} here" in said and f"PYTHON_{python.replace('.', '_')}=" in said
    assert not matrix.TABLE.exists()


def test_where_a_python_is_looked_for(tmp_path, monkeypatch):
    """One that is named comes first. pyenv's on PATH does not run where its version is not switched on."""
    put_python(tmp_path / "bin" / "python3.12", None)
    assert matrix.find_python("3.12") is None
    pyenv = put_python(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python", "3.12.1")
    put_python(tmp_path / "pyenv" / "versions" / "3.11.7" / "bin" / "python", "3.11.7")
    assert matrix.find_python("3.12") == (pyenv, "3.12.1")
    on_path = put_python(tmp_path / "bin" / "python3.12", "3.12.3")
    assert matrix.find_python("3.12") == (on_path, "3.12.3")
    named = put_python(tmp_path / "mine", "3.12.4")
    monkeypatch.setenv("PYTHON_3_12", named)
    assert matrix.find_python("3.12") == (named, "3.12.4")
    put_python(tmp_path / "mine", "3.11.4")  # not what was asked for
    assert matrix.find_python("3.12") == (on_path, "3.12.3")
    assert matrix.find_python("3.11")[1] == "3.11.7"


def test_counts_of_a_real_report(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_one(): pass\n"
        "def test_two(): assert 0\n"
        "def test_three(missing): pass\n"
        "def test_four(): pytest.skip('no')\n"
    )
    report = tmp_path / "report.xml"
    options = ("-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", f"--junitxml={report}")
    matrix.output_of(sys.executable, "-m", "pytest", str(tmp_path), *options)
    assert matrix.counts(report) == (1, 2, 1)


def test_the_set_up_page_shows_cells_that_there_are():
    """Not that it shows all: the first run of a new cell, too, begins with this test."""
    appendix = matrix.REPO / "book" / "appendix"
    text = (appendix / "matrix.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in text.removeprefix(matrix.HEAD).splitlines()]
    assert text.startswith(matrix.HEAD)
    cells = [(series_of(python.strip()), mindspore.strip()) for python, mindspore in rows]
    assert cells == [cell for cell in matrix.CELLS.values() if cell in cells]
    assert "```{include} matrix.md\n```\n" in (appendix / "setup.md").read_text(encoding="utf-8")
