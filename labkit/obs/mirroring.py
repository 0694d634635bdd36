"""What only the target of a copy has, and its removal: labkit obs sync --delete."""

import unicodedata

from labkit.obs import copying
from labkit.obs.place import CloudError, Local, cloud_error, parse
from labkit.obs.plan import Chosen, Item, files_below, ignores_case


def surplus(src, dst, *, include=(), exclude=(), store=None) -> list[Item]:
    """Files below the folder dst that the folder src lacks, without those that the patterns leave out.

    Links that lead out of dst do not count either. Raises CloudError where src is empty: it may be a typing error.
    """
    source, target = parse(src), parse(dst)
    store, chosen = copying.connected(store, source, target), Chosen(tuple(include), tuple(exclude))
    wanted, _ = files_below(source, store, chosen)
    if not wanted:
        raise CloudError(f"{source}: nothing to copy, so nothing is removed in {target} either")
    here = isinstance(target, Local)
    if here and not target.path.is_dir():
        return []
    fold = _folded if here and ignores_case(target.path) else str
    names = {fold(item.name) for item in wanted}
    if not (here or target.key.endswith("/")):  # a bucket, or a folder even where it is an object too
        target = target.below("")
    found, _ = files_below(target, store, chosen, {})
    return [item for item in found if fold(item.name) not in names]


def remove(items, dst, *, jobs=8, store=None) -> None:
    """Remove these files of dst; RemoveError where some stay."""
    target = parse(dst)
    if not isinstance(target, Local):
        copying.remove(store, target, [item.at.key for item in items], jobs)
        return
    failed = []
    for item in items:
        try:
            item.at.unlink(missing_ok=True)
        except OSError as error:
            failed.append((item.name, cloud_error(error)))
    if failed:
        raise copying.RemoveError(target, sorted({item.name for item in items} - dict(failed).keys()), failed)


def _folded(name):
    """A name as file systems compare it where case does not matter."""
    return unicodedata.normalize("NFC", name).casefold()
