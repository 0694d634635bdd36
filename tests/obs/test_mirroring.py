"""labkit obs sync --delete, on a true object server: what is removed, and above all what is not."""

import pytest
from copies import contents, make, put
from obs_cli import document, keys, refused, run
from proxy import ERROR

from labkit.obs import RemoveError, mirroring

TREE = {"a": b"a", "deep/b": b"b"}
MORE = {"c": b"", "deep/er/ä": b"more"}


@pytest.fixture(autouse=True)
def store(account):
    return account


@pytest.fixture
def source(tmp_path):
    return make(tmp_path / "source", TREE)


@pytest.fixture
def url(store, bucket):
    """A folder with all that the source has, and more; next to it is another object."""
    for key, content in {f"x/{name}": content for name, content in (TREE | MORE).items()}.items():
        put(store, bucket, key, content)
    put(store, bucket, "x-other")
    return f"obs://{bucket}/x"


ALL = sorted([*(f"x/{name}" for name in TREE | MORE), "x-other"])
LEFT = sorted([*(f"x/{name}" for name in TREE), "x-other"])
PREVIEW = f"would remove {0:13}  c\nwould remove {4:13}  deep/er/ä\n"


def test_a_dry_run_lists_and_removes_nothing(store, source, bucket, url):
    said = f"{PREVIEW}0 files would be copied, 0 bytes; 2 there already; 2 files would be removed\n"
    assert run("sync", source, url, "--delete", "--dry-run") == (0, said, "")
    told = document("sync", source, url, "--delete", "--dry-run")
    assert (told["removed"], told["skipped"]) == (["c", "deep/er/ä"], 2)
    assert keys(store, bucket) == ALL


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_without_a_yes_nothing_happens(store, source, bucket, url, answer):
    (source / "new").write_bytes(b"new")
    status, said, errors = run("sync", source, url, "--delete", stdin=answer)
    assert (status, said) == (1, PREVIEW)
    assert f"Copy, then remove 2 files in {url}? [y/N]" in errors and "nothing was copied or removed" in errors
    assert keys(store, bucket) == ALL


@pytest.mark.parametrize("target", ["x", "x/"])
def test_after_a_yes_the_bucket_mirrors_the_folder(store, source, bucket, url, target):
    said = "0 files copied, 0 bytes; 2 there already; 2 files removed\n"
    assert run("sync", source, f"obs://{bucket}/{target}", "--delete", stdin="y\n")[:2] == (0, PREVIEW + said)
    assert keys(store, bucket) == LEFT
    assert run("sync", source, url, "--delete")[1].endswith("2 there already; 0 files removed\n")  # asks nothing


def test_quiet_and_json_remove_with_yes(store, source, bucket, url):
    assert run("sync", source, url, "--delete", "--yes", "--quiet") == (0, "", "")
    assert keys(store, bucket) == LEFT
    put(store, bucket, "x/c")
    assert document("sync", source, url, "--delete", "--yes")["removed"] == ["c"] and keys(store, bucket) == LEFT
    assert "removed" not in document("sync", source, url)


def test_down(url, tmp_path):
    half = f".labkit-{'0' * 16}-{'1' * 16}.part"
    there = make(tmp_path / "there", TREE | MORE | {"only/here": b"here", half: b""})
    (outside := tmp_path / "outside").write_text("outside")
    (there / "link").symlink_to(outside)
    assert run("sync", url, there, "--delete", "--yes")[1].endswith("4 there already; 1 file removed\n")
    assert contents(there) == TREE | MORE | {half: b"", "link": b"outside"} and outside.exists()
    assert run("sync", url, tmp_path / "new", "--delete")[1].endswith(
        "4 files copied, 6 bytes; 0 there already; 0 files removed\n"
    )


def test_between_two_folders_of_this_machine(source, tmp_path):
    there = make(tmp_path / "there", TREE | MORE)
    assert run("sync", source, there, "--delete", "--yes")[0] == 0 and contents(there) == TREE


def test_what_patterns_leave_out_stays(store, source, bucket, url):
    assert run("sync", source, url, "--delete", "--yes", "--exclude", "deep/*")[1].endswith("1 file removed\n")
    assert keys(store, bucket) == sorted({*ALL} - {"x/c"})
    run("sync", source, url, "--delete", "--yes", "--include", "deep/b")
    assert keys(store, bucket) == sorted({*ALL} - {"x/c"})


def test_an_empty_source_removes_nothing(store, source, bucket, url, tmp_path):
    (tmp_path / "empty").mkdir()
    for wrong in (tmp_path / "empty", tmp_path / "none", f"obs://{bucket}/none"):
        target = url if wrong != f"obs://{bucket}/none" else source
        assert str(wrong) in refused("sync", wrong, target, "--delete", "--yes")
    assert "nothing is removed" in refused("sync", source, url, "--delete", "--yes", "--include", "none*")
    assert keys(store, bucket) == ALL and contents(source) == TREE


def test_a_copy_that_fails_removes_nothing(store, source, bucket, url, proxy, monkeypatch):
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(method="PUT", path="x/a", times=10**6, answer=(400, ERROR % b"InvalidArgument", {}))
    (source / "a").write_bytes(b"other")
    status, said, errors = run("sync", source, url, "--delete", "--yes")
    assert (status, said) == (1, "") and errors.startswith("nothing was removed\nError: a: obs://")
    assert keys(store, bucket) == ALL


def test_a_removal_that_fails(store, source, bucket, url, proxy, monkeypatch):
    monkeypatch.setenv("OBS_ENDPOINT", proxy.url)
    proxy.plant(method="DELETE", path="x/c", times=10**6, answer=(403, ERROR % b"AccessDenied", {}))
    assert "1 objects removed, 1 not: " in refused("sync", source, url, "--delete", "--yes")
    assert keys(store, bucket) == sorted([*LEFT, "x/c"])


def test_what_has_come_since_the_preview_stays(store, source, bucket, url, monkeypatch):
    """Between the question and the copy the source gets a file that only the target had."""
    find = mirroring.surplus

    def then_one_comes(*arguments, **options):
        found = find(*arguments, **options)
        (source / "c").write_bytes(b"")
        return found

    monkeypatch.setattr(mirroring, "surplus", then_one_comes)
    assert document("sync", source, url, "--delete", "--yes")["removed"] == ["deep/er/ä"]
    assert keys(store, bucket) == sorted([*LEFT, "x/c"])


def test_where_case_does_not_matter(source, tmp_path, monkeypatch):
    """On such a folder, README is the file that readme has become."""
    there = make(tmp_path / "there", {"A": b"a", "Deep/B": b"b", "c": b"c"})
    assert [item.name for item in mirroring.surplus(source, there)] == ["A", "Deep/B", "c"]
    monkeypatch.setattr(mirroring, "ignores_case", lambda folder: True)
    assert [item.name for item in mirroring.surplus(source, there)] == ["c"]


@pytest.mark.parametrize("arguments, says", [
    (["cp", "--delete"], "No such option"), (["sync", "--yes"], "only --delete asks"),
    (["sync", "--delete", "--json"], "add --yes, or look first with --dry-run"),
])  # fmt: skip
def test_what_makes_no_sense(source, url, arguments, says):
    command, *options = arguments
    assert says in refused(command, source, url, *options, status=2)


def test_a_file_that_cannot_be_removed(source, tmp_path):
    """A folder has taken its place since it was found."""
    there = make(tmp_path / "there", TREE | {"c": b"", "d": b""})
    found = mirroring.surplus(source, there)
    (there / "c").unlink()
    (there / "c").mkdir()
    with pytest.raises(RemoveError) as caught:
        mirroring.remove(found, there)
    assert caught.value.removed == ["d"] and [name for name, _ in caught.value.failed] == ["c"]
    assert contents(there) == TREE
