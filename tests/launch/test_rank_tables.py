"""Rank tables of one and several servers; and mistakes in them."""

import json

import pytest

from labkit.launch import rank_tables
from labkit.launch.rank_tables import RankTableError
from tests.launch.conftest import table

ONE = ("10.0.0.1", [0, 1])


@pytest.fixture
def write(tmp_path):
    """Function that writes a rank table, or any text, and returns its path."""

    def write(content):
        file = tmp_path / "hccl_2p.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return write


def test_rank_table(write):
    """In any order; of one server also without addresses."""
    content = table(ONE)
    content["server_list"][0]["device"].reverse()
    for device in content["server_list"][0]["device"]:
        del device["device_ip"]
    cards = rank_tables.local_cards(write(content), 2)
    assert [(card["RANK_ID"], card["RANK_SIZE"], card["DEVICE_ID"]) for card in cards] == [
        ("0", "2", "0"), ("1", "2", "1")
    ]  # fmt: skip


def with_device(**changes):
    content = table(ONE)
    content["server_list"][0]["device"][1].update(changes)
    return content


@pytest.mark.parametrize("content, says", [
    ("{", "JSON"), (table(ONE, version="0.1"), "version: must be '1.0'"),
    (with_device(rank_id="2"), r"rank_id: must count from 0 without a gap, not \[0, 2\]"),
    (with_device(device_id="0"), "device_id: 0 of 10.0.0.1 is listed twice"),
    (table(ONE, ("10.0.0.2", [2])), "device: each server must have equally many, not 2 and 1"),
])  # fmt: skip
def test_rank_table_that_is_wrong(write, content, says):
    file = write(content)
    with pytest.raises(RankTableError, match=rf"^{file}: .*{says}") as caught:
        rank_tables.local_cards(file, 2)
    assert len(str(caught.value).splitlines()) == 1


def test_cards_of_this_server(write):
    """Of several servers the one that has an address of this machine; loopback is one."""
    file = write(table(("10.254.254.1", [0, 1]), ("127.0.0.1", [6, 7])))
    cards = rank_tables.local_cards(file, 4)
    assert [(card["RANK_ID"], card["RANK_SIZE"], card["DEVICE_ID"]) for card in cards] == [
        ("2", "4", "6"), ("3", "4", "7")
    ]  # fmt: skip
    assert {card["RANK_TABLE_FILE"] for card in cards} == {str(file)}


def test_cards_that_do_not_fit(write):
    """Too few; on none of the servers."""
    with pytest.raises(RankTableError, match="lists 2 devices, not 8"):
        rank_tables.local_cards(write(table(ONE)), 8)
    with pytest.raises(RankTableError, match="server_id: no server has an address"):
        rank_tables.local_cards(write(table(ONE, ("10.254.254.2", [2, 3]))), 4)
