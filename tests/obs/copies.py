"""What the tests of copying share: files and objects to make and read, and processes that copy."""

import hashlib
import multiprocessing
import os
import random
import subprocess
import sys
from pathlib import Path

from swift import environment

from labkit.system.interrupts import die_with_parent

PART = 2 << 20  # the least that the server takes: swift.py
BIG = random.Random(0).randbytes(2 * PART + 12345)  # three parts
LARGE = random.Random(1).randbytes(7 * PART + 12345)  # eight parts
FORKS = multiprocessing.get_context("forkserver")  # of a process that has imported the SDK, which takes a second
FORKS.set_forkserver_preload(["obs", "labkit.obs"])
SHA = "0123456789abcdef" * 4
TEXT = b"one two three four five"
BLOCK = bytes(range(256)) * (2 << 12)  # PART bytes
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


def open_uploads(store, bucket, key):
    """Ids of this key's uploads that were begun and neither completed nor aborted; labkit itself never asks."""
    from obs import ListMultipartUploadsRequest

    asked = ListMultipartUploadsRequest(prefix=key, max_uploads=1000)
    found = store.client.listMultipartUploads(bucket, asked, encoding_type="url")
    assert found.status == 200 and not found.body.isTruncated
    return [one.uploadId for one in found.body.upload or () if one.key == key]


def notes():
    """Files that uploads have left."""
    return [path for path in Path(os.environ["XDG_CACHE_HOME"]).rglob("*") if path.is_file()]


def start(script, proxy, *arguments, **more):
    """A process that runs this, with the server behind the proxy."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], env=os.environ | environment(proxy.url),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent, **more,
    )  # fmt: skip


def start_copy(known, part, *ends):
    """A process that copies with parts of this size, two requests at a time. known: what its environment has too."""
    child = FORKS.Process(target=_copy, args=(os.environ | known, part, *map(str, ends)), daemon=True)
    child.start()
    return child


def _copy(known, part, *ends):
    from labkit.obs import copy, retrying, server_copies, transfers

    os.environ.update(known)
    transfers.PART = server_copies.WHOLE = part
    retrying.LONGEST_WAIT = 0.05
    copy(*ends, jobs=2)
