"""A learner's saved notebook, executed as grading will execute it."""

import json
import os
import re
from pathlib import Path


def run_alone(file: str | Path, names: dict) -> None:
    """Run each answer with only what grading gives it, then the check below it; print what the check says.

    file: the saved notebook; Jupyter's own, if Jupyter says which. names: what checks may use besides, `globals()`.
    """
    file, given, task, answer = Path(os.environ.get("JPY_SESSION_NAME", file)), {}, None, {}
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"] if file.is_file() else []
    print("each answer alone:" if cells else f"{file}: not done yet; save the notebook, or give the name that it has")
    for cell in cells:
        text, marks = "".join(cell["source"]), cell["metadata"]
        is_check, is_answer = task and text.startswith("# Check"), "answer" in marks
        is_given = cell.get("id", "").startswith("cell-") and "ungraded" not in marks.get("tags", [])
        if cell["cell_type"] != "code" or not (is_check or is_answer or is_given):
            continue
        before, task = dict(given), marks.get("answer", task)
        try:
            exec(re.sub(r"(?m)^[%!].*", "", text), names | answer if is_check else given)
        except Exception as error:
            print(f"{task}: {type(error).__name__}: {error}")
            is_check = True  # the check below has nothing to say
        bound = {name: value for name, value in given.items() if name not in before or value is not before[name]}
        task, answer = (None, {}) if is_check else (task, answer | bound)
