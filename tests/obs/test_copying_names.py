"""Which names and links are copied, which fail alone, and which refuse the whole copy."""

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from copies import contents, make, put

from labkit.obs import CloudError, CopyError, copy, ls, plan, transfers, verify
from labkit.obs.place import parse
from labkit.system.files import atomic_write

pytestmark = pytest.mark.usefixtures("direct")


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/abs", ".."])
def test_keys_that_lead_out_refuse_all(direct, bucket, tmp_path, key):
    put(direct, bucket, "in/good")
    put(direct, bucket, f"in/{key}")
    for act in (copy, verify):
        with pytest.raises(CloudError, match="leads out of the folder|an absolute path") as caught:
            act(f"obs://{bucket}/in", tmp_path / "target")
        assert repr(key) in str(caught.value) and len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    copy(f"obs://{bucket}/in", tmp_path / "target", exclude=[key])
    assert contents(tmp_path / "target") == {"good": b"text"}


@pytest.mark.parametrize("key, says", [
    ("a//b", "empty"), ("./x", "empty"), ("odd/", "empty"), ("x" * 256, "255 bytes"),
])  # fmt: skip
def test_keys_that_are_no_file_fail_alone(direct, bucket, tmp_path, key, says):
    put(direct, bucket, "in/good")
    put(direct, bucket, f"in/{key}")
    with pytest.raises(CopyError, match=f"{says}.*; 1 copied") as caught:
        copy(f"obs://{bucket}/in", tmp_path / "target")
    assert [name for name, _ in caught.value.report.failed] == [key]
    assert contents(tmp_path / "target") == {"good": b"text"}
    (difference,) = verify(f"obs://{bucket}/in", tmp_path / "target")
    assert difference.startswith(f"{key}: ") and says in difference


def test_names_of_other_systems_travel(direct, bucket, tmp_path):
    """Windows has none of them as a file, or not next to the others."""
    names = ["a\\b", "C:/x", "nul", "aux.c", "x./y", "z /y", "a\nb", "\x1b[2J", "README", "readme", "STRASSE", "straße"]
    files = {name: name.encode() for name in names}
    assert copy(make(tmp_path / "up", files), f"obs://{bucket}/x").copied == len(files)
    assert {item.name for item in ls(f"obs://{bucket}/x")} == set(files)
    assert copy(f"obs://{bucket}/x", tmp_path / "down").copied == len(files)
    assert contents(tmp_path / "down") == files and verify(f"obs://{bucket}/x", tmp_path / "down") == []


@pytest.mark.parametrize("names, fails, says", [
    (["a/B", "a/b"], "a/b", "the same file as 'a/B'"), (["STRASSE", "straße"], "straße", "the same file as 'STRASSE'"),
    (["A", "a/b/c"], "A", "a folder of this name"), (["x/Y", "x/y/z"], "x/Y", "a folder of this name"),
])  # fmt: skip
def test_where_case_does_not_matter(tmp_path, monkeypatch, names, fails, says):
    """As on a Mac: what would overwrite another file of the copy fails, alone."""
    source = make(tmp_path / "source", {name: name.encode() for name in names})
    with monkeypatch.context() as patch, pytest.raises(CopyError, match=f"{says}.*; 1 copied") as caught:
        patch.setattr(plan, "ignores_case", lambda folder: True)
        copy(source, tmp_path / "target")
    assert [name for name, _ in caught.value.report.failed] == [fails]
    assert set(contents(tmp_path / "target")) == {*names} - {fails}
    assert copy(source, tmp_path / "other").copied == 2


def test_does_case_matter(tmp_path):
    make(tmp_path, {"folder/file": b""})
    assert not plan.ignores_case(tmp_path / "folder") and not plan.ignores_case(tmp_path / "folder" / "none")
    (tmp_path / "FOLDER").symlink_to("folder")
    assert plan.ignores_case(tmp_path) and plan.ignores_case(tmp_path / "none")


def test_hostile_targets_are_refused(through, proxy, bucket, tmp_path):
    """A gateway that tidies paths would read another bucket's name in them."""
    make(tmp_path / "source", {"a": b"1"})
    for source in (tmp_path / "source" / "a", tmp_path / "source"):
        with pytest.raises(CloudError, match="leads out of the folder"):
            copy(source, f"obs://{bucket}/../other/x", store=through)
    assert proxy.requests("PUT") == []


def test_folder_markers(direct, bucket, tmp_path):
    for key in ("x/", "x/deep/", "only/"):
        put(direct, bucket, key, b"")
    put(direct, bucket, "x/deep/a")
    assert copy(f"obs://{bucket}/x", tmp_path / "target").copied == 1
    assert contents(tmp_path / "target") == {"deep/a": b"text"}
    with pytest.raises(CloudError, match="nothing to copy"):
        copy(f"obs://{bucket}/only", tmp_path / "none")
    put(direct, bucket, "x/odd/", b"has content")
    with pytest.raises(CopyError, match="odd/.*empty; 0 copied, 1 there already"):
        copy(f"obs://{bucket}/x", tmp_path / "target")


def test_links_that_lead_out(direct, bucket, tmp_path):
    outside = make(tmp_path / "outside", {"secret": b"s"})
    source = make(tmp_path / "source", {"a": b"1"})
    (source / "inner").symlink_to("a")
    assert copy(source, f"obs://{bucket}/x").copied == 2
    for to in (outside / "secret", outside, "../outside/secret", "nowhere", "."):
        (source / "link").symlink_to(to)
        says = "a link that leads out of .* exclude it|a link to a folder; .* exclude it|a link to nothing"
        with pytest.raises(CloudError, match=says):
            copy(source, f"obs://{bucket}/y")
        assert copy(source, f"obs://{bucket}/z", exclude=["link"], dry_run=True).copied == 2
        (source / "link").unlink()
    assert list(direct.list(bucket, "y")) == []
    target = tmp_path / "target"
    target.mkdir()
    put(direct, bucket, "down/sub/secret", b"overwritten")
    put(direct, bucket, "down/file", b"fresh")
    (target / "sub").symlink_to(outside)
    (target / "file").symlink_to(outside / "secret")
    with pytest.raises(CopyError, match="leads out") as caught:
        copy(f"obs://{bucket}/down", target)
    assert [name for name, _ in caught.value.report.failed] == ["sub/secret"]
    assert contents(outside) == {"secret": b"s"} and (target / "file").read_bytes() == b"fresh"


def test_what_is_no_file(bucket, tmp_path):
    source = make(tmp_path / "source", {"a": b"1"})
    os.mkfifo(source / "pipe")
    with pytest.raises(CloudError, match="neither a file nor a folder"):
        copy(source, f"obs://{bucket}")
    (source / "pipe").unlink()
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_bytes(b"")
    with pytest.raises(CopyError, match="UTF-8; 1 copied"):
        copy(source, f"obs://{bucket}")
    assert copy(source, tmp_path / "here").copied == 2


@pytest.mark.parametrize("kind", ["FIFO", "device", "link to a device"])
def test_what_is_no_file_is_not_replaced(direct, bucket, tmp_path, kind):
    """A copy into a device would make it a file: as root, /dev/null."""
    target = tmp_path / "target" / "name"
    target.parent.mkdir()
    if kind == "FIFO":
        os.mkfifo(target)
    elif kind == "link to a device":
        target.symlink_to("/dev/null")
    elif os.geteuid():
        pytest.skip("only root makes devices")
    else:
        os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    before = os.lstat(target).st_mode
    source = make(tmp_path / "source", {"name": b"1", "other": b"2"})
    put(direct, bucket, "in/name")
    for act, place in ((copy, f"obs://{bucket}/in/name"), (copy, source / "name"), (copy, f"obs://{bucket}/in")):
        end = target.parent if str(place).endswith("/in") else target
        with pytest.raises(CloudError, match="name: neither a file nor a folder, and not replaced"):
            act(place, end)
    with pytest.raises(CopyError, match="not replaced by one; 1 copied"):
        copy(source, target.parent)
    with pytest.raises(OSError, match="not replaced"):
        atomic_write(target, "text")
    assert os.lstat(target).st_mode == before and sorted(os.listdir(target.parent)) == ["name", "other"]


def test_excluded_folders_are_not_read(tmp_path_factory):
    """One that cannot be read does not stop the copy of the others."""
    if os.geteuid():
        top = tmp_path_factory.mktemp("here")
    else:  # who may read all things becomes somebody else
        top = Path(tempfile.mkdtemp(dir="/tmp"))
    source = make(top / "source", {"a": b"1", "deep/b": b"2", "deep/closed/c": b"3", "closed/d": b"4"})
    for name in ("closed", "deep/closed"):
        (source / name).chmod(0)
    top.chmod(0o777)
    user = os.geteuid()
    try:
        os.seteuid(user or 65534)
        with pytest.raises(CloudError, match="closed: Permission denied"):
            copy(source, top / "none", exclude=["*/closed/*"])
        assert copy(source, top / "target", exclude=["closed/*", "*/clos*"]).copied == 2
        assert copy(source, top / "other", exclude=["*closed/*"]).copied == 2
        odd = {}
        assert copy(source, top / "third", odd=odd).copied == 2 and set(odd) == {"closed", "deep/closed"}
    finally:
        os.seteuid(user)
        for name in ("closed", "deep/closed"):
            (source / name).chmod(0o700)
        shutil.rmtree(top)


@pytest.mark.parametrize("size", [5, 1 << 20])
def test_a_private_file_stays_private(direct, bucket, tmp_path, size):
    """What replaces it, also while it grows."""
    put(direct, bucket, "k", bytes(size))
    source = make(tmp_path / "source", {"k": bytes(size)})
    for place in (f"obs://{bucket}/k", source / "k"):
        target = tmp_path / "target"
        target.write_text("secret")
        target.chmod(0o600)
        copy(place, target)
        assert stat.S_IMODE(target.stat().st_mode) == 0o600 and target.stat().st_size == size
    copy(f"obs://{bucket}/k", tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644


def test_what_is_being_written_is_writable(tmp_path, monkeypatch):
    """Whatever the target is, or nobody but root could resume the copy."""
    source, target = make(tmp_path / "source", {"k": b"1"}) / "k", tmp_path / "target"
    target.write_text("old")
    target.chmod(0o444)
    modes, copyfile = [], transfers.shutil.copyfile
    monkeypatch.setattr(transfers.shutil, "copyfile", lambda a, b: (modes.append(os.stat(b).st_mode), copyfile(a, b)))
    copy(source, target)
    assert target.read_bytes() == b"1" and stat.S_IMODE(target.stat().st_mode) == 0o444
    assert [stat.S_IMODE(mode) for mode in modes] == [0o644]


def test_only_labkits_own_unfinished_files_are_left_out(tmp_path):
    own = f".labkit-{'0' * 16}-local.part"
    source = make(tmp_path / "source", {".labkit-notes.part": b"1", own: b"2"})
    copy(source, tmp_path / "target")
    assert contents(tmp_path / "target") == {".labkit-notes.part": b"1"}


def test_folders_may_be_deeper_than_pythons_calls(tmp_path):
    top = tmp_path / "deep"
    os.mkdir(bottom := top)
    for _ in range(1200):
        os.mkdir(bottom := bottom / "d")
    (bottom / "file").write_text("1")
    try:
        items, _ = plan.files_below(parse(str(top)), None)
        assert [item.name for item in items] == ["d/" * 1200 + "file"]
    finally:
        subprocess.run(["rm", "-rf", top], check=True)  # pytest would not come through


def test_a_file_beside_a_folder_of_its_name(direct, bucket, tmp_path):
    """The folder was meant; of the two, no machine could have both."""
    put(direct, bucket, "models/best")
    source = make(tmp_path, {"f": b"1"})
    with pytest.raises(CloudError, match=f"obs://{bucket}/models: there is a folder of this name; write .*/models/ to"):
        copy(source / "f", f"obs://{bucket}/models")
    assert copy(source / "f", f"obs://{bucket}/models/").copied == 1
    put(direct, bucket, "models", b"there already")
    assert copy(source / "f", f"obs://{bucket}/models").copied == 1
    assert {item.name for item in ls(f"obs://{bucket}")} == {"models", "models/best", "models/f"}


def test_a_foreign_checksum(direct, bucket, tmp_path):
    """A sha256 in the metadata that another tool wrote, of what it compressed, say, does not make a file damaged."""
    direct.put(bucket, "k", b"text", "0" * 64)
    assert copy(f"obs://{bucket}/k", tmp_path / "k").copied == 1 and (tmp_path / "k").read_bytes() == b"text"
    assert verify(f"obs://{bucket}/k", tmp_path / "k") == [] == verify(tmp_path / "k", f"obs://{bucket}/k")
    assert copy(tmp_path / "k", f"obs://{bucket}/k").skipped == 1
