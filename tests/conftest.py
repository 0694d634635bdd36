"""What all tests share: where the project is, the sample data, and a watch over files left behind."""

import os
import runpy
import ssl
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests"), str(REPO)]

from selection import require  # noqa: E402

pytest.register_assert_rewrite("small_runs")

# Before any test imports labkit or MindSpore, and for every process that a test starts.
os.environ.setdefault("LABKIT_DATA", str(REPO / "data"))
os.environ.setdefault("MS_OM_PATH", str(REPO / "_build" / "mindspore"))
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["PYTHONPATH"] = str(REPO)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

# What MindSpore or a training run leaves in the working directory of a careless test.
LITTER = (
    "rank_*", "kernel_meta", "*.ckpt", "*.mindir", "*.onnx", "*.air", "profiler*", "msrun_log", "rewritten_network",
)  # fmt: skip
UNWATCHED = {".git", ".venv", "_build", "data", "runs", "work", "__pycache__"}


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The project's top folder."""
    return REPO


@pytest.fixture(scope="session")
def sample_data() -> Path:
    """The sample data set's folder; made here when it is missing."""
    folder = Path(os.environ["LABKIT_DATA"]) / "sample"
    if not folder.is_dir():
        subprocess.run([sys.executable, REPO / "data_scripts" / "cifar10.py", "sample"], check=True)
    return folder


@pytest.fixture(scope="session")
def write_noise():
    """Function that writes 200 + 50 images of noise, of so many classes, into a new folder as CIFAR-10 has them."""

    def write_noise(folder, classes=10):
        folder.mkdir()
        rng = np.random.default_rng(0)
        for name, images in [*((f"data_batch_{i}.bin", 40) for i in range(1, 6)), ("test_batch.bin", 50)]:
            records = rng.integers(0, 256, (images, 3073), dtype=np.uint8)
            records[:, 0] = np.arange(images) % classes
            (folder / name).write_bytes(records.tobytes())

    return write_noise


@pytest.fixture
def run_file(monkeypatch, capsys):
    """Function that runs a file of Python in this process, as a program with arguments."""

    def run_file(file, *arguments):
        monkeypatch.setattr(sys, "argv", [str(file), *map(str, arguments)])
        status = 0
        try:
            runpy.run_path(str(file), run_name="__main__")
        except SystemExit as ended:  # with a message, as Python ends a program: on stderr, and 1
            status = ended.code
        stdout, stderr = capsys.readouterr()
        if isinstance(status, str):
            status, stderr = 1, f"{stderr}{status}\n"
        return subprocess.CompletedProcess(arguments, status, stdout, stderr)

    return run_file


@pytest.fixture
def start(lab, tmp_path, monkeypatch, run_file):
    """Function that runs a start file of `lab` in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda name, *arguments: run_file(lab / name, *arguments)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Folder with ca.pem, and a function: the SSLContext of a server with a certificate by it, HOST.pem, for a host."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(name, *more):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", *more],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip

    def context(host):
        openssl(host, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE",
                "-addext", f"subjectAltName=DNS:{host}")  # fmt: skip
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(folder / f"{host}.pem", folder / f"{host}.key")
        return server

    openssl("ca")
    return folder, context


@pytest.fixture(scope="session")
def pytorch():
    """PyTorch and torchvision; skips without them."""
    require("PyTorch")


@pytest.fixture(scope="session")
def torchvision(pytorch):
    """The module torchvision."""
    from labkit.parity.pytorch import torchvision

    return torchvision()


@pytest.fixture(scope="session")
def onnxruntime(pytorch):
    """The module onnxruntime, which `make torch` installs as well."""
    import onnxruntime

    return onnxruntime


@pytest.fixture(scope="session")
def sandboxed():
    """True; skips where bubblewrap cannot be used."""
    require("bubblewrap")
    return True


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium without a network but this machine's own address, driven by selenium."""
    require("Chromium")
    import pdf

    chrome = pdf.chromium(f"--user-data-dir={tmp_path_factory.mktemp('profile')}", logs=True)
    chrome.set_page_load_timeout(300)
    chrome.set_script_timeout(300)  # an audit of axe-core is one script
    yield chrome
    chrome.quit()


@pytest.fixture(scope="session")
def litter():
    """A function: what runs have left behind in the project until now."""
    return _litter


def _litter() -> set[Path]:
    found = set()
    for folder, names, files in os.walk(REPO):
        names[:] = [name for name in names if name not in UNWATCHED]
        found |= {Path(folder, name) for name in names + files if any(Path(name).match(p) for p in LITTER)}
    return found


def pytest_sessionstart(session):
    session.config.stash[_BEFORE] = _litter()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    left = sorted(_litter() - session.config.stash.get(_BEFORE, set()))
    session.config.stash[_LEFT] = left
    if left and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    for path in config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"ERROR left behind by a test: {path.relative_to(REPO)}", red=True)


_BEFORE = pytest.StashKey[set]()
_LEFT = pytest.StashKey[list]()
