"""Values that probes emit: written as JSON in the learner's kernel, read and compared in the grader's own process.

What is read is never trusted: no pickle, a limit on bytes and depth, and whatever does not fit is a difference.
Each submission's kernel imports this module, so it imports no other of labkit's.
"""

import base64
import binascii
import builtins
import json
import linecache
import math
import os
import re
import stat
import sys
import types
from decimal import Decimal
from numbers import Real
from pathlib import Path

NAME = r"[a-z][a-z0-9_]*"  # of a task, and of a value
FOLDER = "LABKIT_VALUES"  # environment variable: where `emit` writes
MOST_BYTES = 4_000_000  # of one probe's values, as JSON
DEEPEST = 16
NUMBERS = "biufc"  # kinds of numpy's dtypes that can be emitted
_given, _bound = {}, {}  # what the master's cells have bound; by task, the names that its probes have


def emitter(task: str):
    """`emit(name, value)` for the probes of a task: one file TASK.NAME.json a value."""

    def emit(name: str, value) -> None:
        if not re.fullmatch(NAME, name):
            raise ValueError(f"{name!r}: a value's name has small letters, digits and _")
        text = json.dumps(encoded(value), allow_nan=False)
        if len(text) > MOST_BYTES:
            raise ValueError(f"{name}: {len(text):,} bytes are too many to emit")
        file = Path(os.environ[FOLDER], f"{task}.{name}.json")
        file.write_text(text)

    return emit


def given(own: list[str]) -> None:
    """At the end of a master's cell: save its names for the probes, because an answer may rebind them."""
    names = _kernel()
    _given.update({name: names[name] for name in own if name in names})


def probe(task: str, seed: int, source: str) -> None:
    """Execute a probe in a module of its own task, which finds the kernel's names and binds none of them.

    So a probe changes no helper of the learner's, whatever its name. It sees what the master's cells defined, even if
    an answer has rebound it, and `list` and `range` are Python's own, whatever the learner has bound to these names.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    module = sys.modules.setdefault(f"{__name__}.{task}", types.ModuleType(f"{__name__}.{task}"))
    names, own, space = _kernel(), _bound.setdefault(task, set()), vars(module)
    for name in names.keys() - own - vars(builtins).keys():
        space[name] = names[name]
    space.update({name: found for name, found in _given.items() if name not in own}, emit=emitter(task), seed=seed)
    before = dict(space)
    file, text = f"<probe of {task}, {len(linecache.cache)}>", TransformerManager().transform_cell(source)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # MindSpore compiles from sources
    try:
        exec(compile(text, file, "exec"), space)
    finally:
        own.update(name for name in space if name not in before or space[name] is not before[name])


def _kernel():
    """The names of the kernel; `globals` may be one that the learner has bound."""
    from IPython import get_ipython

    return get_ipython().user_ns


def encoded(value, depth: int = 0):
    """A value as JSON can hold it; TypeError for what cannot be emitted."""
    import numpy as np

    if depth > DEEPEST:
        raise ValueError("too deeply nested to emit")
    if hasattr(value, "asnumpy"):  # a Tensor of MindSpore
        value = value.asnumpy()
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Real | Decimal):
        value = float(value)
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list | tuple):
        return [encoded(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encoded(key, depth + 1), encoded(item, depth + 1)] for key, item in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    raise TypeError(f"a {type(value).__name__} cannot be emitted")


def read(folder: Path, most_bytes: int = MOST_BYTES) -> dict[str, dict]:
    """{task: {name: encoded}} of a folder's files; ValueError where they are no values, or more than `most_bytes`."""
    found, total = {}, 0
    for file in sorted(folder.iterdir()):
        if not (ours := re.fullmatch(rf"({NAME})\.({NAME})\.json", file.name)):
            continue
        task, name = ours.groups()
        # Neither a link, which may lead anywhere, nor a pipe, which would be waited for.
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as opened:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ValueError(f"{file.name}: not a file")
            data = opened.read(most_bytes - total + 1)
        total += len(data)
        if total > most_bytes:
            raise ValueError(f"values of more than {most_bytes:,} bytes")
        try:
            found.setdefault(task, {})[name] = json.loads(data)
        except RecursionError:
            raise ValueError(f"{file.name}: too deeply nested") from None
    return found


def difference(found, wanted, rtol: float, atol: float) -> str:
    """"" where an encoded value equals the wanted one, or why it does not: no word of the wanted value itself.

    Whole numbers are compared exactly, others by |found - wanted| <= atol + rtol |wanted|. NaN equals nothing, a bool
    is no number; the dtypes of arrays of numbers may differ.
    """
    try:
        return _difference(_decoded(found), _decoded(wanted), rtol, atol)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
        return "not a value"


def _decoded(value, depth=0):
    """What was encoded; an array comes back as numpy's, a dict's items as a dict. ValueError, TypeError."""
    import numpy as np

    if depth > DEEPEST:
        raise ValueError("too deeply nested")
    if isinstance(value, list):
        return [_decoded(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"} and value["float"] in ("nan", "inf", "-inf"):
        return float(value["float"])
    if set(value) == {"dict"}:
        return {_decoded(key, depth + 1): _decoded(item, depth + 1) for key, item in value["dict"]}
    if set(value) == {"dtype", "shape", "data"} and re.fullmatch(rf"[<>|][{NUMBERS}]\d\d?", value["dtype"]):
        data = base64.b64decode(value["data"], validate=True)
        return np.frombuffer(data, np.dtype(value["dtype"])).reshape([_size(size) for size in value["shape"]])
    raise ValueError("not a value")


def _size(size):
    if type(size) is not int or size < 0:
        raise ValueError("not a shape")
    return size


def _difference(found, wanted, rtol, atol):
    import numpy as np

    kind = _kind(wanted)
    if _kind(found) != kind:
        return "another type"
    if kind == "list" and len(found) != len(wanted):
        return "another length"
    if kind == "dict" and set(found) != set(wanted):
        return "other keys"
    if kind in ("list", "dict"):
        pairs = zip(found, wanted) if kind == "list" else ((found[key], wanted[key]) for key in wanted)
        return next(filter(None, (_difference(*pair, rtol, atol) for pair in pairs)), "")
    if kind not in ("a number", "numbers", "truths"):
        return "" if found == wanted else "values differ"
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return "another shape"
    if found.dtype.kind in "fc" and np.isnan(found).any():
        return "not a number"
    if found.dtype == object or wanted.dtype.kind in "iubO":  # object: whole numbers beyond 64 bits
        return "" if found.tolist() == wanted.tolist() else "values differ"
    wider = np.complex128 if "c" in (found.dtype.kind, wanted.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        near = np.isclose(found.astype(wider), wanted.astype(wider), rtol=rtol, atol=atol)
    return "" if near.all() else "values differ"


def _kind(value):
    """Values of different kinds are never equal."""
    if isinstance(value, bool) or value is None or isinstance(value, str | list | dict):
        return type(value).__name__
    if isinstance(value, int | float):
        return "a number"
    return "truths" if value.dtype.kind == "b" else "numbers"
