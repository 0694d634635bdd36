"""The prose of a page: what a reader reads, without code, formulas, options and metadata."""

import re

import chapters

FENCE = re.compile(r"\s*(?P<fence>`{3,}|:{3,})(?:\{(?P<name>[\w-]+)\})?(?P<rest>.*)$")
# Directives in backticks whose text is read like the text around it; text between colons always is.
READ = {"admonition", "dropdown", "exercise", "figure", "glossary", "note", "rubric", "tip", "warning"}


def prose(document: str) -> str:
    """Its text, captions of drawings included; a lab's in the learner's version."""
    text = chapters.learners_version.text_of(chapters.REPO / f"{document}.md")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    kept, open_fences = [], []  # of each open fence: its marks, and whether what is in it is read
    for line in text.split("\n"):
        if found := FENCE.match(line):
            fence, name, rest = found["fence"], found["name"], found["rest"].strip()
            if open_fences and (fence, name, rest) == (open_fences[-1][0], None, ""):
                open_fences.pop()
            elif all(read for _, read in open_fences):
                open_fences.append((fence, fence[0] == ":" or name in READ))
                kept += [rest] if open_fences[-1][1] and name != "figure" else []
        elif all(read for _, read in open_fences) and not re.match(r"\s*:[\w-]+:", line):
            kept.append(line)
    return re.sub(r"\$\$.*?\$\$", "", "\n".join(kept), flags=re.S)


def count(text: str) -> int:
    """Words as they are read: what has a letter or a digit."""
    text = re.sub(r"^\([\w-]+\)=$", "", text, flags=re.M)
    return sum(bool(re.search(r"\w", word)) for word in text.replace("|", " ").split())
