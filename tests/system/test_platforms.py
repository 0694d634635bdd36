"""labkit on macOS and Windows, as far as that can be tested on Linux.

`elsewhere.py` imports other packages, then sets sys.platform, removes the modules and functions that the other system's
Python does not have, hides /proc from labkit's code, and only then imports labkit. So these tests find labkit's own use
of what only Linux has, wherever the commands below get to, and show what a user there reads. They cannot show that
MindSpore, or any other package, works there, nor anything of paths, encodings, consoles or open files on Windows.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SYSTEMS = ("darwin", "win32")
HINT = {"darwin": "On a Mac, use a Linux virtual machine or container", "win32": "On Windows, use WSL2"}


def elsewhere(*arguments):
    """What a process on another system has to say."""
    program = Path(__file__).with_name("elsewhere.py")
    done = subprocess.run([sys.executable, program, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_module_is_imported(system):
    assert elsewhere(system, "imports") == {}


@pytest.mark.parametrize("system", SYSTEMS)
def test_commands(system, tmp_path, write_noise, sample_data):
    write_noise(tmp_path / "data")
    found = elsewhere(system, "commands", tmp_path)
    left = found.pop("left")
    findings = {one["name"]: one for one in json.loads(found.pop("doctor")[1])["findings"]}
    platform = findings["platform"]
    assert (platform["status"], "WSL2" in platform["advice"]) == {
        "darwin": ("note", False), "win32": ("problem", True),
    }[system]  # fmt: skip
    problems = {name for name, one in findings.items() if one["status"] == "problem"}
    assert problems <= {"platform", "convolution"}  # the machine may be busy
    assert "bubblewrap is a program for Linux" in findings["sandbox"]["found"]
    for name in ("train", "eval", "plot", "compare", "obs", "lab"):
        assert found.pop(name)[0] == 0, name
    for name, (status, output, error) in found.items():
        assert (status, output) == (1, "") and len(error.splitlines()) == 1, (name, error)
        command = "submit --target local" if name == "submit" else name.partition(" ")[0]
        assert error.startswith(f"Error: labkit {command} needs Linux: "), error
        assert error.strip().endswith(HINT[system]), error
    refused = {"darwin": set(), "win32": {"submit"}}[system]
    assert set(found) == {"launch", "grade", "grade --no-sandbox", "release"} | refused
    assert left == ["copied", "data", "run", "work"], "a command that cannot work began all the same"
