"""What the tests of copying share: files and objects to make and read, and labkit obs in the tests' own process."""

import hashlib
import os
import random
from pathlib import Path

from running import labkit

PART = 1 << 20
BIG = random.Random(0).randbytes(2 * PART + 12345)  # three parts
TEXT = b"one two three four five"
SHA = "0123456789abcdef" * 4
TREE = {"a.txt": b"a", "empty": b"", "deep/er/b.bin": bytes(range(256)),
        "ä ö/日本 🙂 &<>'\".txt": b"unicode", "big": BIG}  # fmt: skip


def md5(content):
    return hashlib.md5(content).hexdigest()


def make(folder, files):
    """Write files below a folder: {name: content}; returns the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def objects(server):
    """{key: content} of the bucket `course`."""
    return {key: entry.content for key, entry in server.buckets["course"].items()}


def put(store, key, content=b"text"):
    """Write an object of the bucket `course`; returns its ETag."""
    return store.put("course", key, content, hashlib.sha256(content).hexdigest())


def records():
    """Files that uploads have left."""
    return [path for path in Path(os.environ["XDG_CACHE_HOME"]).rglob("*") if path.is_file()]


def run(*arguments):
    """labkit obs with these, in this process: status, stdout, stderr."""
    done = labkit("obs", *arguments)
    return done.exit_code, done.stdout, done.stderr


def refused(*arguments, status=1):
    """The error's line."""
    ended, stdout, stderr = run(*arguments)
    assert (ended, stdout) == (status, "")
    lines = stderr.splitlines()
    assert lines[-1].startswith("Error: ") and (status == 2 or len(lines) == 1)
    return lines[-1]
