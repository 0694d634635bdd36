"""Values that probes emit: JSON outputs of their cells, which the grader's own process compares.

Values are not trusted: no pickle, a limit on bytes, and anything malformed counts as a difference. Each
submission's kernel imports this module, so it must not import other modules of the grader.
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

NAME = r"[a-z][a-z0-9_]*"  # of a task or a value
MIME = "application/vnd.labkit.value+json"  # of the output that contains an emitted value
MOST_BYTES = 4_000_000  # of a cell's values, as JSON; further values are ignored
NUMBERS = "biufc"  # kinds of numpy's dtypes that can be emitted
DIFFERENCES = TYPE, LENGTH, KEYS, SHAPE, DIFFER, NOT_A_NUMBER, NOT_A_VALUE = (
    "another type", "another length", "other keys", "another shape", "values differ", "not a number", "not a value",
)  # fmt: skip
_given, _bound = {}, {}  # values that the master's cells have bound; names that each task's probes have bound


def emit(name: str, value) -> None:
    """Called by a probe: makes a value an output of its cell."""
    from IPython.display import publish_display_data

    publish_display_data({MIME: {name: encoded(value)}})


def emitted(outputs: list[dict]) -> dict:
    """{name: encoded value} from a cell's outputs."""
    values = {}
    for output in outputs:
        value = (output.get("data") or {}).get(MIME)
        if isinstance(value, dict) and len(json.dumps(values | value)) <= MOST_BYTES:
            values |= value
    return values


def given(names: list[str]) -> None:
    """At the end of a master's cell: save its names for the probes, because an answer may rebind them."""
    from IPython import get_ipython

    namespace = get_ipython().user_ns  # not globals(), which the learner may have rebound
    _given.update({name: namespace[name] for name in names if name in namespace})


def probe(task: str, seed: int, source: str) -> None:
    """Execute a probe in a module for its task, which can use the kernel's names without rebinding them.

    So a probe never changes the learner's helpers. It sees what the master's cells defined, even if an answer has
    rebound it, and `list` and `range` are Python's own, even if the learner has rebound these names.
    """
    from IPython import get_ipython
    from IPython.core.inputtransformer2 import TransformerManager

    module = sys.modules.setdefault(f"{__name__}.{task}", types.ModuleType(f"{__name__}.{task}"))
    names, bound, space = get_ipython().user_ns, _bound.setdefault(task, set()), vars(module)
    for name in names.keys() - bound - vars(builtins).keys():
        space[name] = names[name]
    space.update({name: value for name, value in _given.items() if name not in bound}, emit=emit, seed=seed)
    before = dict(space)
    file, text = f"<probe of {task}, {len(linecache.cache)}>", TransformerManager().transform_cell(source)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # MindSpore compiles from sources
    try:
        exec(compile(text, file, "exec"), space)
    finally:
        bound.update(name for name in space if name not in before or space[name] is not before[name])


def encoded(value):
    """A value in a form that JSON can store; TypeError if it cannot be emitted."""
    import numpy as np

    if hasattr(value, "asnumpy"):  # a MindSpore Tensor
        value = value.asnumpy()
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Real | Decimal):
        value = float(value)
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    raise TypeError(f"a {type(value).__name__} cannot be emitted")


def difference(actual, expected, rtol: float, atol: float) -> str:
    """Why two encoded values differ, without revealing anything about the expected value; "" if they are equal.

    Integers are compared exactly, other numbers by |actual - expected| <= atol + rtol |expected|. NaN equals nothing,
    and a bool is not a number; the dtypes of arrays of numbers may differ.
    """
    try:
        return _difference(_decoded(actual), _decoded(expected), rtol, atol)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
        return NOT_A_VALUE


def _decoded(value):
    """The value that was encoded; raises ValueError, TypeError."""
    import numpy as np

    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"} and value["float"] in ("nan", "inf", "-inf"):
        return float(value["float"])
    if set(value) == {"dict"}:
        return {_decoded(key): _decoded(item) for key, item in value["dict"]}
    if set(value) == {"dtype", "shape", "data"} and re.fullmatch(rf"[<>|][{NUMBERS}]\d\d?", value["dtype"]):
        data = base64.b64decode(value["data"], validate=True)
        return np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"])
    raise ValueError("not a value")


def _difference(actual, expected, rtol, atol):
    import numpy as np

    category = _category(expected)
    if _category(actual) != category:
        return TYPE
    if category == "list" and len(actual) != len(expected):
        return LENGTH
    if category == "dict" and set(actual) != set(expected):
        return KEYS
    if category in ("list", "dict"):
        pairs = zip(actual, expected) if category == "list" else ((actual[key], expected[key]) for key in expected)
        return next(filter(None, (_difference(*pair, rtol, atol) for pair in pairs)), "")
    if category not in ("number", "numbers", "bools"):
        return "" if actual == expected else DIFFER
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        return SHAPE
    if actual.dtype.kind in "fc" and np.isnan(actual).any():
        return NOT_A_NUMBER
    if actual.dtype == object or expected.dtype.kind in "iubO":  # object: integers beyond 64 bits
        return "" if actual.tolist() == expected.tolist() else DIFFER
    wider = np.complex128 if "c" in (actual.dtype.kind, expected.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        near = np.isclose(actual.astype(wider), expected.astype(wider), rtol=rtol, atol=atol)
    return "" if near.all() else DIFFER


def _category(value):
    """Values of different categories are never equal."""
    if isinstance(value, bool) or value is None or isinstance(value, str | list | dict):
        return type(value).__name__
    if isinstance(value, int | float):
        return "number"
    return "bools" if value.dtype.kind == "b" else "numbers"
