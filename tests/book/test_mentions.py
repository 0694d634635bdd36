"""What texts name exists: paths of the project, targets of `make`, commands and options of `labkit`."""

import mentions
import pytest

GOOD = """\
`make book`, `make lab LAB=thor`, `make clean env PYTHON=/path/to/python3.11`, `make`, `labkit`, `$ labkit -h`,
`labkit train LAB --profile sample`, `labkit obs ls --help`, `labkit COMMAND --help`, `labkit train ...`,
`LABKIT_DATA=/data labkit doctor --json`, `python data_scripts/cifar10.py import PATH`, `.venv/bin/labkit jobs list`,
`labkit/networks/convolution.py`, `labkit/thor/`, `labs/*/recipe.yaml`, `labs/NAME/lab.md`, `book/<part>/<name>.md`,
`labkit launch -n 2 train imagenet --set max_steps=4`, `labkit launch -n 2 labs/imagenet/train.py --any thing`,
{doc}`/book/gone`, {ref}`gone <labs/gone.md>`, `runs/gone`, `python -m pip install labs/thor`, `labkit/parity`

```sh
. .venv/bin/activate && labkit train cifar10 --resume | tee gone; make lint # make gone
labkit export runs/x --format onnx \\
    --out gone.onnx > gone
```

```{code-cell} python3
labkit.gone(`make gone`)
```
"""
BROKEN = [
    "`make gone`",
    "`make lab GONE=1`",
    "`labkit train cifar10 --gone 3`",
    "`python data_scripts/cifar10.py gone`",
    "`labs/*/gone.yaml`",
    "```sh\nlabkit train thor \\\n  --gone\n```",
    "```{note}\nRead\n`labkit/gone.py`.\n```",
    "````{dropdown} D\n```\n$ labkit gone\n```\n````",
]


def test_all_that_texts_name_exists():
    assert mentions.check() == []


def test_what_a_text_may_name():
    assert mentions.wrong_names(GOOD) == []


@pytest.mark.parametrize("text", BROKEN)
def test_a_name_that_does_not_exist_is_found(text):
    ((name, _),) = mentions.wrong_names(f"---\ntitle: x\n---\n\n# Title\n\nText.\n\n{text}\n")
    assert "gone" in name.lower()
