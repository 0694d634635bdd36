"""YAML files as people write them: a key occurs once, 1e-4 is a number, and 010 and 1:30 are not."""

import re
from pathlib import Path

import yaml

from labkit.system.errors import first_line

INT, FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
FLOATS = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?")


class _Loader(yaml.SafeLoader):
    """YAML 1.1, which PyYAML reads, takes the last of two equal keys, and 010 for 8."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (INT, FLOAT)]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor):
        node, keys = super().compose_mapping_node(anchor), set()
        for key, _ in node.value:
            if (key.tag, str(key.value)) in keys:
                raise yaml.constructor.ConstructorError(problem=f"{key.value}: twice", problem_mark=key.start_mark)
            keys.add((key.tag, str(key.value)))
        return node


_Loader.add_implicit_resolver(INT, re.compile(r"[-+]?(0|[1-9][0-9_]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(FLOAT, re.compile(rf"({FLOATS.pattern}|[-+]?\.inf|\.nan)$"), list("-+.0123456789"))


def read(file: Path, error: type[Exception]) -> dict:
    """The keys and values in a file; raises `error` with one line that names it."""
    try:
        tree = yaml.load(Path(file).read_text(encoding="utf-8-sig"), _Loader)
    except OSError as problem:
        raise error(f"{file}: cannot be read ({problem.strerror})") from None
    except (yaml.YAMLError, ValueError, KeyError, RecursionError) as problem:  # the last three: as for wrong dates
        mark, reason = getattr(problem, "problem_mark", None), getattr(problem, "problem", "") or first_line(problem)
        line = f", line {mark.line + 1}" if mark else ""
        raise error(f"{file}{line}: not valid YAML: {reason}") from None
    if not isinstance(tree, dict):
        raise error(f"{file}: must contain keys and values")
    return tree
