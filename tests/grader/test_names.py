"""Helpers of an answer may have any name, whatever the master, its probes and its checks call their own things."""

import symtable
import textwrap

import pytest

from grader import execution, grade
from grader import lab as labs

GUARD = """
class _Helper:
    def __repr__(self):
        return "a learner's helper"


helper_of_{task} = _Helper()
{names} = helper_of_{task}


def guarded_{task}(function):
    def guarded(*arguments, **options):
        lost = [name for name in {given} if globals().get(name) is not helper_of_{task}]
        assert not lost, lost
        return function(*arguments, **options)

    return guarded


for name_of_{task} in {asked}:
    asked_{task} = globals()[name_of_{task}]
    if isinstance(asked_{task}, type):
        asked_{task}.__init__ = guarded_{task}(asked_{task}.__init__)
    elif type(asked_{task}) is type(guarded_{task}):
        globals()[name_of_{task}] = guarded_{task}(asked_{task})
"""


def with_helpers(lab):
    """Right answers, each with a helper by every name that the master binds.

    Without those that an answer uses itself, or a function that the lab gives: these are lost for the self-check too.
    """
    asked = {task: labs.bound(text) for task, text in lab.solutions.items()}
    used = set().union(*(_read(symtable.symtable(text, "answer", "exec")) for text in lab.solutions.values()))
    for cell in lab.graded_cells:
        if not labs.answer_of(cell) and not labs.probe_of(cell):
            text = labs.source(cell).replace("%matplotlib inline", "")
            used = used.union(*map(_read, symtable.symtable(text, "given", "exec").get_children()))
    shared = [labs.bound(labs.source(cell)) for cell in lab.graded_cells if not labs.answer_of(cell)]
    inner = [_inner(cell) for cell in lab.graded_cells if labs.probe_of(cell)]
    names = set().union({"emit", "seed", "emitter"}, *shared, *inner) - used - set().union(*asked.values())
    # Between two answers a lab may bind more: what an earlier answer calls its own is then gone for the learner too.
    later = {task: set() for task in asked}
    for cell in lab.graded_cells:
        if not labs.answer_of(cell) and not labs.probe_of(cell):
            for task in asked:
                later[task] |= labs.bound(labs.source(cell)) if _before(lab, task, cell) else set()
    answers = {}
    for task, text in lab.solutions.items():
        given = sorted(names - later[task])
        guard = GUARD.format(task=task, names=" = ".join(given), given=given, asked=sorted(asked[task]))
        answers[task] = f"{text}\n{textwrap.dedent(guard)}"
    return answers


def _before(lab, task, cell):
    ids = [other["id"] for other in lab.graded_cells]
    return ids.index(f"answer-{task}") < ids.index(cell["id"])


def _read(table):
    own = {one.get_name() for one in table.get_symbols() if one.is_referenced() and one.is_global()}
    own |= {one.get_name() for one in table.get_symbols() if table.get_type() == "module" and one.is_referenced()}
    return own.union(*map(_read, table.get_children()))


def _inner(cell):
    """Names that a probe's functions bind: those that a learner's helper is likely to have."""
    table = symtable.symtable(labs.source(cell), "probe", "exec")
    local = [one for child in table.get_children() for one in child.get_symbols() if one.is_assigned()]
    return {one.get_name() for one in local if not one.get_name().startswith(".")}


@pytest.mark.parametrize("name", ["tiny", "cifar10", "imagenet", "thor"])
def test_helpers_may_have_every_name_that_the_master_binds(name, tiny, sandboxed, sample_data):
    lab = tiny if name == "tiny" else labs.load(name)
    references = execution.execute(lab, lab.solutions, lab.manifest.seed)["values"]
    answers = with_helpers(lab)
    executed = execution.execute(lab, answers, lab.manifest.seed)
    tasks = grade.score(lab, answers, executed, references)
    wrong = {task: entry for task, entry in tasks.items() if entry["verdict"] != "right"}
    assert not wrong, (wrong, {cell: found for cell, found in executed["cells"].items() if found["error"]})


def test_what_a_probe_binds_is_the_next_probes_of_its_task_and_nobody_elses(edited, sandboxed):
    probe = "```{code-cell} python3\n---\nprobe: steps\n---\n"
    lab = edited("lab.md", 'emit("steps", steps)', f'drawn = [seed]\n%time emit("steps", steps)\n```\n\n{probe}'
                 'assert drawn == [7] and batch == 32\nbatch = 7\ndrawn.append(1)')  # fmt: skip
    answers = lab.solutions | {
        "steps": lab.solutions["steps"] + "\nbatch = drawn = seed = emit = 5",
        "total": lab.solutions["total"] + "\nassert (batch, drawn, seed, emit) == (5, 5, 5, 5)",
    }
    found = execution.execute(lab, answers, 7)
    assert {cell["outcome"] for cell in found["cells"].values()} == {"passed"}, found["cells"]
    assert found["values"]["steps"] == {"steps": 44}
