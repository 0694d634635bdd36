"""What texts name exists: paths of the project, targets of `make`, commands and options of `labkit`."""

import mentions
import pytest

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


@pytest.mark.parametrize("text", BROKEN)
def test_a_name_that_does_not_exist_is_found(text):
    ((name, _),) = mentions.wrong_names(f"---\ntitle: x\n---\n\n# Title\n\nText.\n\n{text}\n")
    assert "gone" in name.lower()
