"""Which learners handed in the same answers: something to look at, never a verdict.

What is fair to call the same, and what is not:
- Comments, blank lines, docstrings, the spacing and the width of the indentation do not make an answer another one.
- A short answer is no evidence: of `steps = 1437 // batch` there are only so many ways to write it. So a task counts
  only where the instructor's own solution adds at least ENOUGH tokens to the stub, and an answer only where it has as
  many.
- The stub and the instructor's solution are no evidence: everybody has the stub, and many find the solution, the plain
  way to do it.
- One common answer is no evidence if several tasks count: at least two must be equal.
- All must be equal: two learners who took one answer from the same forum still differ in the others.
- A Run is no evidence: the same recipe and seed give the same checkpoint to all who train on the same kind of machine.
"""

import hashlib
import io
import tokenize
from collections import Counter
from textwrap import dedent

from grader.lab import parted

ENOUGH = 30  # tokens: a function of three or four lines
_LAYOUT = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_LEFT_OUT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)


def tokens(source: str) -> list[str]:
    """What Python reads of a source, without comments and docstrings; its words, where it is no Python."""
    kept, line = [], []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _LEFT_OUT:
                line.append(token)
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                if {token.type for token in line}.difference(_LAYOUT) == {tokenize.STRING}:  # such as a docstring
                    line = [token for token in line if token.type in (tokenize.INDENT, tokenize.DEDENT)]
                kept += [_LAYOUT.get(token.type, token.string) for token in line]
                line = []
    # An open bracket, an indentation that fits nowhere, and from Python 3.12 on a lone surrogate.
    except (tokenize.TokenError, SyntaxError, UnicodeEncodeError):
        return source.split()
    return kept


def normalised(source: str) -> str:
    """A source with one spacing and no comments: equal for two answers that differ in nothing else."""
    return " ".join(tokens(source)).strip()


def answer_digest(source: str) -> str:
    """SHA-256 of the normalised source; "" for one of fewer than ENOUGH tokens, which is no evidence."""
    if len(tokens(source)) < ENOUGH:
        return ""
    return hashlib.sha256(normalised(source).encode("utf-8", "backslashreplace")).hexdigest()


def counting(lab) -> dict[str, set[str]]:
    """Tasks whose answers are evidence, each with the digests to ignore: of the stub and of the solution."""
    found = {}
    for task, text in lab.solutions.items():
        own = dedent("\n".join(parted(text)[1]))
        added = Counter(tokens(own)) - Counter(tokens(lab.stubs[task]))
        if added.total() >= ENOUGH:
            known = (text, own, lab.stubs[task])
            found[task] = {answer_digest(source) for source in known}
    return found


def _evidence(tasks, result):
    """((task, digest), ...) of a learner's own answers that count."""
    given = ((task, result.get("answers", {}).get(task, "")) for task in sorted(tasks))
    return tuple((task, digest) for task, digest in given if digest and digest not in tasks[task])


def compared(lab, results: list[dict]) -> list[str]:
    """Tasks to which somebody has handed in an answer that counts, sorted."""
    tasks = counting(lab)
    return sorted({task for result in results for task, _ in _evidence(tasks, result)})


def groups(lab, results: list[dict]) -> list[dict]:
    """Learners who share all answers that count: [{"students": [...], "tasks": [...]}], sorted."""
    tasks = counting(lab)
    alike = {}
    for result in results:
        evidence = _evidence(tasks, result)
        if evidence and len(evidence) >= min(2, len(tasks)):
            alike.setdefault(evidence, []).append(result["student"])
    shared = sorted((sorted(students), evidence) for evidence, students in alike.items() if len(students) > 1)
    return [{"students": students, "tasks": [task for task, _ in evidence]} for students, evidence in shared]
