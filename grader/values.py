"""Values that probes emit: an output of their cell, as JSON, which the grader's own process compares.

What is read is never trusted: no pickle, a limit on bytes and depth, and whatever does not fit is a difference.
Each submission's kernel imports this module, so it imports no other of the grader's.
"""

import base64
import binascii
import builtins
import json
import linecache
import math
import re
import sys
import types
from decimal import Decimal
from numbers import Real

NAME = r"[a-z][a-z0-9_]*"  # of a task, and of a value
MIME = "application/vnd.labkit.value+json"  # of the output that holds an emitted value
DEEPEST = 16
MOST_BYTES = 4_000_000  # of a cell's values, as JSON; what is beyond counts for nothing
NUMBERS = "biufc"  # kinds of numpy's dtypes that can be emitted
DIFFERENCES = TYPE, LENGTH, KEYS, SHAPE, DIFFER, NOT_A_NUMBER, NOT_A_VALUE = (
    "another type", "another length", "other keys", "another shape", "values differ", "not a number", "not a value",
)  # fmt: skip
_given, _bound = {}, {}  # what the master's cells have bound; by task, the names that its probes have


def emit(name: str, value) -> None:
    """What a probe calls: the value becomes an output of its cell."""
    from IPython.display import publish_display_data

    if not re.fullmatch(NAME, name):
        raise ValueError(f"{name!r}: a value's name has small letters, digits and _")
    publish_display_data({MIME: {name: encoded(value)}})


def emitted(outputs: list[dict]) -> dict:
    """{name: encoded} of a cell's outputs."""
    found = {}
    for output in outputs:
        value = (output.get("data") or {}).get(MIME)
        if isinstance(value, dict) and len(json.dumps(found | value)) <= MOST_BYTES:
            found |= value
    return found


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
    space.update({name: found for name, found in _given.items() if name not in own}, emit=emit, seed=seed)
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


def difference(found, wanted, rtol: float, atol: float) -> str:
    """"" where an encoded value equals the wanted one, or why it does not: no word of the wanted value itself.

    Whole numbers are compared exactly, others by |found - wanted| <= atol + rtol |wanted|. NaN equals nothing, a bool
    is no number; the dtypes of arrays of numbers may differ.
    """
    try:
        return _difference(_decoded(found), _decoded(wanted), rtol, atol)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
        return NOT_A_VALUE


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
        return np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"])
    raise ValueError("not a value")


def _difference(found, wanted, rtol, atol):
    import numpy as np

    kind = _kind(wanted)
    if _kind(found) != kind:
        return TYPE
    if kind == "list" and len(found) != len(wanted):
        return LENGTH
    if kind == "dict" and set(found) != set(wanted):
        return KEYS
    if kind in ("list", "dict"):
        pairs = zip(found, wanted) if kind == "list" else ((found[key], wanted[key]) for key in wanted)
        return next(filter(None, (_difference(*pair, rtol, atol) for pair in pairs)), "")
    if kind not in ("a number", "numbers", "truths"):
        return "" if found == wanted else DIFFER
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return SHAPE
    if found.dtype.kind in "fc" and np.isnan(found).any():
        return NOT_A_NUMBER
    if found.dtype == object or wanted.dtype.kind in "iubO":  # object: whole numbers beyond 64 bits
        return "" if found.tolist() == wanted.tolist() else DIFFER
    wider = np.complex128 if "c" in (found.dtype.kind, wanted.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        near = np.isclose(found.astype(wider), wanted.astype(wider), rtol=rtol, atol=atol)
    return "" if near.all() else DIFFER


def _kind(value):
    """Values of different kinds are never equal."""
    if isinstance(value, bool) or value is None or isinstance(value, str | list | dict):
        return type(value).__name__
    if isinstance(value, int | float):
        return "a number"
    return "truths" if value.dtype.kind == "b" else "numbers"
