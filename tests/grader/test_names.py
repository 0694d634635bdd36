"""Helpers of an answer may have any name, whatever the master and its probes call their own things."""

from grader import execution


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
