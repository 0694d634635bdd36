"""Files and objects that the tests of copying make and read."""

import hashlib


def make(folder, files):
    """Write files below a folder: {name: content}; returns the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def contents(folder):
    """{name: content} of all files below a folder, hidden ones as well."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put(store, bucket, key, content=b"text"):
    """Write an object."""
    return store.put(bucket, key, content, hashlib.sha256(content).hexdigest())


def content_of(store, bucket, key):
    """Content of an object."""
    entry = store.head(bucket, key)
    return bytes(store.get(bucket, key, 0, entry.size, entry.etag))
