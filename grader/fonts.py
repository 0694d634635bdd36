"""matplotlib's list of fonts, made once: in a sandbox it would be made anew, for seconds, and otherwise in the home."""

import os
from contextlib import contextmanager
from pathlib import Path


def font_list() -> dict[str, bytes]:
    """The list that is there, as a file of a sandbox's home; matplotlib, asked where it lies, would make the folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "matplotlib")
    found = sorted(Path(os.environ.get("MPLCONFIGDIR") or cache).glob("fontlist-*.json"))
    return {f".matplotlib/{file.name}": file.read_bytes() for file in found}


@contextmanager
def kept_in(folder: Path):
    """Have matplotlib keep its list in `folder`, here and in processes started here; one made before is taken."""
    folder.mkdir()
    for name, data in font_list().items():
        (folder / Path(name).name).write_bytes(data)
    before = os.environ.get("MPLCONFIGDIR")
    os.environ["MPLCONFIGDIR"] = str(folder)
    try:
        if not any(folder.iterdir()):
            import matplotlib.font_manager  # noqa: F401, it writes the list
        yield
    finally:
        os.environ.pop("MPLCONFIGDIR")
        if before is not None:
            os.environ["MPLCONFIGDIR"] = before
