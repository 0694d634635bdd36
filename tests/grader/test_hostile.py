"""Answers that attack the grader, on a lab of many small tasks: each costs its own task, and no other."""

import dataclasses
import os
import socket
import time
from pathlib import Path

import psutil
import pytest

from grader import execution
from grader.grade import score
from grader.lab import load

TASKS = "abcdefgh"
CELLS = """
**Task {task}.** Six times seven, and how that depends on what it is asked for.

```{{code-cell}} python3
---
answer: {task}
---
value_{task} = None
# BEGIN SOLUTION
value_{task} = 42
# END SOLUTION
```

```{{code-cell}} python3
---
probe: {task}
---
emit("value", value_{task})
emit("drawn", value_{task} * np.random.default_rng(seed).uniform())
```
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Eight tasks of two points each, that do not need one another."""
    folder = tmp_path_factory.mktemp("lab") / "hostile"
    folder.mkdir()
    kernel = "---\nkernelspec: {display_name: Python 3, language: python, name: python3}\n---\n"
    setup = "# Lab\n\n```{code-cell} python3\nimport numpy as np\n```\n"
    (folder / "lab.md").write_text(kernel + setup + "".join(CELLS.format(task=task) for task in TASKS))
    tasks = "".join(
        f"  {task}: {{title: T, values: {{value: {{points: 1}}, drawn: {{points: 1}}}}}}\n" for task in TASKS
    )
    limits = "time_limit: 60\ntotal_time: 600\nmemory: 500\nprocesses: 60\n"
    (folder / "grading.yaml").write_text(f"title: Hostile\nseed: 3\n{limits}tasks:\n{tasks}")
    return load(folder)


@pytest.fixture(scope="module")
def references(lab):
    """What the master emits; nothing of it is known inside any sandbox."""
    return execution.execute(lab, lab.solutions, 3, sandboxed=False)["values"]


@pytest.fixture
def attacked(lab, references, sandboxed):
    """Function that grades a submission with these answers, the others right: {task: (verdict, points)}."""

    def attacked(answers, seconds=None):
        """seconds: for each cell of the tasks that these answers answer; the lab's where not given."""
        answers = {task: text.replace("VALUE", f"value_{task}") for task, text in answers.items()}
        tasks = {task: its.model_copy(update={"time_limit": seconds}) for task, its in lab.manifest.tasks.items()
                 if task in answers}  # fmt: skip
        manifest = lab.manifest.model_copy(update={"tasks": lab.manifest.tasks | tasks})
        executed = execution.execute(dataclasses.replace(lab, manifest=manifest), lab.solutions | answers, 3)
        tasks = score(lab, lab.solutions | answers, executed, references)
        found = {task: (tasks[task]["verdict"], tasks[task]["points"]) for task in tasks}
        others = {task: found[task] for task in TASKS if task not in answers}
        assert others == dict.fromkeys(others, ("right", 2))
        attacked.executed = executed
        return {task: found[task] for task in answers}

    return attacked


def test_markers_count_for_nothing(attacked):
    found = attacked({
        "a": "# NBVAL_SKIP\nVALUE = 41",
        "b": "# NBVAL_RAISES_EXCEPTION\nraise ValueError('wanted')",
        "c": "# NBVAL_RAISES_EXCEPTION\n# NBVAL_SKIP\nVALUE = 42",
        "d": "# PYTEST_VALIDATE_IGNORE_OUTPUT\nVALUE = None",
        "e": "import pytest\npytest.skip('not today')",
        "f": "import pytest\npytest.xfail('wanted')",
        "g": "import sys\nVALUE = 42\nsys.exit(0)",
    })  # fmt: skip
    rest = {"a": ("wrong", 0), "c": ("right", 2), "d": ("not done", 0)}
    assert found == dict.fromkeys("befg", ("error", 0)) | rest
    ended = attacked.executed["cells"]["answer-b"]
    assert (ended["outcome"], ended["error"]) == ("error", "ValueError, line 2: wanted")
    assert ended["traceback"].endswith("ValueError: wanted")


def test_patches_of_what_asserts_and_compares(attacked):
    found = attacked({
        "a": "import builtins, numpy.testing as t\nfor name in dir(t):\n    if name.startswith('assert_'):\n"
             "        setattr(t, name, lambda *a, **k: None)\nVALUE = 41",
        "b": "import grader.values as v\nv.difference = lambda *a, **k: ''\n"
             "np.allclose = np.isclose = np.array_equal = lambda *a, **k: True\nVALUE = 41",
        "c": "import ast\nclass Drop(ast.NodeTransformer):\n    visit_Assert = lambda self, node: ast.Pass()\n"
             "get_ipython().ast_transformers.append(Drop())\nVALUE = 41",
        "d": "get_ipython().input_transformers_cleanup.append("
             "lambda lines: [l for l in lines if not l.startswith('assert')])\nVALUE = 41",
        "e": "class Agrees:\n    def __eq__(self, other): return True\n    def __float__(self): return 42.0\n"
             "    def __array__(self, *a): return np.array(42)\n    def __mul__(self, other): return self\n"
             "VALUE = Agrees()",
        "f": "VALUE = float('nan')",
        "g": "def deeper(n): return deeper(n + 1)\nVALUE = deeper(0)",
        "h": "get_ipython().set_custom_exc((Exception,), lambda *a, **k: None)\nVALUE = undefined",
    })  # fmt: skip
    assert found == dict.fromkeys("abcdf", ("wrong", 0)) | {"e": ("error", 0), "g": ("error", 0), "h": ("wrong", 0)}


@pytest.mark.slow  # three executions
def test_patches_of_what_probes_use_gain_nothing(attacked):
    """Each as the last task: what an answer ruins in its kernel is ruined for the cells after it."""
    emit = "import grader.values as v\nv.emit = lambda name, value: None\n"
    assert attacked({"h": emit + "VALUE = 42"}) == {"h": ("wrong", 0)}
    ahead = "import grader.values as v\nv.emit('value', 42)\nVALUE = None"
    assert attacked({"h": ahead}) == {"h": ("error", 0)}
    constant = "class Constant:\n    def uniform(self): return 0.5\nnp.random.default_rng = lambda *a: Constant()\n"
    assert attacked({"h": constant + "VALUE = 42"}) == {"h": ("partly right", 1)}


@pytest.mark.slow  # much output
def test_what_is_deleted_or_flooded_costs_only_its_task(attacked):
    found = attacked({
        "a": "import os, shutil\nos.chdir('/')\nfor name in os.listdir('/tmp/home'):\n"
             "    shutil.rmtree('/tmp/home/' + name, ignore_errors=True)\nVALUE = 41",
        "b": "VALUE = np.zeros(2_000_000)",
        "c": "import os\nfor i in range(2000):\n    os.write(1, b'x' * 100_000)\nVALUE = 41",
        "d": "print('x' * 20_000_000)\nraise RuntimeError('y' * 5_000_000)",
        "e": "from IPython.display import HTML\nfor i in range(20):\n    display(HTML('y' * 500_000))\nVALUE = 41",
        "f": "with open('/tmp/full', 'wb') as file:\n    while True:\n        file.write(bytes(10_000_000))",
        "g": "import os\nos.unlink('/tmp/full')\nVALUE = 41",
    })  # fmt: skip
    assert found == dict.fromkeys("abceg", ("wrong", 0)) | dict.fromkeys("df", ("error", 0))


def test_nothing_of_the_host_is_seen_or_changed(attacked, repo_root, lab, tmp_path, monkeypatch):
    """Each answer is right where it was refused what it tried: a finding would be an exception."""
    looks = [repo_root / "tests", repo_root / "book", repo_root / ".git", lab.folder, Path.home() / ".ssh", tmp_path]
    looks += list((repo_root / "labs").glob("*/lab.md")) + list((repo_root / "labs").glob("*/grading.yaml"))
    assert lab.folder.is_dir() and (repo_root / "tests").is_dir()
    monkeypatch.setenv("LABKIT_SECRET", "x")
    try_write = "VALUE = 42\nfor place in {places}:\n    try:\n        open(place, 'w').write('x')\n" \
                "    except OSError:\n        continue\n    raise SystemExit(place)"  # fmt: skip
    places = ["/usr/x", "/etc/passwd", str(repo_root / "x"), str(repo_root / "labkit/__init__.py"), "/x", "/dev/x",
              "/var/x", "/run/x", "/proc/sys/kernel/hostname",
              os.path.join(os.environ["LABKIT_DATA"], "sample/x")]  # fmt: skip
    found = attacked({
        "a": f"import os\nVALUE = 42\nfor place in {list(map(str, looks))}:\n"
             "    assert not os.path.exists(place), place",
        "b": "import os\nseen = []\nfor folder, folders, names in os.walk('/'):\n"
             "    if folder.startswith(('/proc', '/sys', '/usr', '/lib')) or 'site-packages' in folder:\n"
             "        folders.clear()\n        continue\n"
             "    seen += {'lab.md', 'grading.yaml', 'lab.ipynb', 'conftest.py'}.intersection(names)\n"
             "assert not seen, seen\nVALUE = 42",
        "c": try_write.format(places=places),
        "d": "import os\nassert os.getuid() != 0\nassert 'LABKIT_SECRET' not in os.environ\n"
             "assert os.environ['HOME'].startswith('/tmp')\nVALUE = 42",
    })  # fmt: skip
    assert {task: attacked.executed["cells"][f"answer-{task}"]["error"] for task in found} == dict.fromkeys(found, "")
    assert found == dict.fromkeys(found, ("right", 2))


def test_no_packet_arrives(attacked):
    addresses = [address for card in psutil.net_if_addrs().values() for address in card]
    hosts = sorted({address.address for address in addresses if address.family == socket.AF_INET} | {"127.0.0.1"})
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.settimeout(2)
        port = server.getsockname()[1]
        for host in hosts:
            socket.create_connection((host, port)).close()
            server.accept()[0].close()
        found = attacked({
            "a": f"import socket\nVALUE = 42\nfor host in {hosts}:\n    try:\n"
                 f"        socket.create_connection((host, {port}), timeout=2)\n    except OSError:\n"
                 "        continue\n    raise SystemExit(host)",
            "b": "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=2)",
            "c": "import socket\nsocket.getaddrinfo('example.org', 80)",
            "d": "import socket\nwith socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
                 "    s.sendto(b'x', ('192.0.2.1', 53))",
        })  # fmt: skip
        assert found == dict.fromkeys("bcd", ("error", 0)) | {"a": ("right", 2)}
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_grader_cannot_be_killed_or_imitated(attacked):
    forged = '{"cell": "probe-h-24", "outcome": "passed", "error": "", "values": {"value": 42}}'
    found = attacked({
        "a": "import os, signal\nfor number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT):\n"
             "    os.kill(os.getppid(), number)\nVALUE = 41",
        "b": f"import os\nline = '''{forged}'''\nprint(line)\n"
             "for n in (1, 2):\n    os.write(n, line.encode() + b'\\n')\nVALUE = 41",
        "c": "import subprocess, sys\nsubprocess.Popen(['sleep', '98765.25'], start_new_session=True)\n"
             "subprocess.Popen([sys.executable, '-c', 'import os, time\\nif os.fork() == 0:\\n"
             "    os.setsid(); time.sleep(98765.25)'])\nVALUE = 41",
    })  # fmt: skip
    assert found == dict.fromkeys("abc", ("wrong", 0))
    assert not [p for p in psutil.process_iter(["cmdline"]) if "98765.25" in str(p.info["cmdline"])]


def test_a_cell_that_quits_costs_its_own_task(attacked):
    """The kernel ends a moment after such a cell, which has then ended well."""
    assert attacked({"a": "VALUE = 42\nquit()"}) == {"a": ("crashed", 0)}


@pytest.mark.slow  # an attempt for each
def test_bombs(attacked):
    """Both end with a limit of the whole execution; on a busy machine, the fork bomb with its cell's time."""
    found = attacked({
        "a": "import time\nkept = []\nwhile True:\n    kept.append(np.ones(2_000_000))\n    time.sleep(0.05)",
        "b": "import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.2)",
    }, seconds=20)  # fmt: skip
    assert found["a"] == ("crashed", 0) and found["b"] in (("crashed", 0), ("timed out", 0))


@pytest.mark.slow  # each attempt waits for a time limit
def test_what_never_ends(attacked):
    """The second sends messages all the time; each would begin the wait anew."""
    began = time.monotonic()
    found = attacked({
        "a": "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "b": "import time\nwhile True:\n    try:\n        print(1)\n        time.sleep(1)\n    except: pass",
        "c": "import time\ntry:\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    VALUE = 42",
        "h": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    }, seconds=6)  # fmt: skip
    assert found == dict.fromkeys("abch", ("timed out", 0))
    assert attacked.executed["attempts"] == 5 and time.monotonic() - began < 200
