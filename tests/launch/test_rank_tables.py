"""Rank tables that are read and built, from hccn.conf files and arguments, of several servers; and mistakes in them."""

import json

import pytest
from click.testing import CliRunner
from made_tables import table

from labkit.cli import main
from labkit.launch import rank_tables
from labkit.launch.rank_tables import Card, RankTableError

HCCN = """\
address_0=192.168.100.101
netmask_0=255.255.255.0

address_1 = 192.168.101.101
send_arp_status_0=1
"""
ONE = ("10.0.0.1", [0, 1])


@pytest.fixture
def write(tmp_path):
    """Function that writes a rank table, or any text, and returns its path."""

    def write(content):
        file = tmp_path / "hccl_2p.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    return write


@pytest.fixture
def hccn(tmp_path):
    """A hccn.conf."""
    (tmp_path / "hccn.conf").write_text(HCCN)
    return tmp_path / "hccn.conf"


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, ["rank-table", *map(str, arguments)])


# -- Read ------------------------------------------------------------------------------------------------


def test_rank_table(write):
    """In any order; of one server also without addresses."""
    cards = rank_tables.read_rank_table(write(table(("10.0.0.1", [4, 5]), ("10.0.0.2", [0, 1]))))
    assert cards == [Card("10.0.0.1", 4, 0), Card("10.0.0.1", 5, 1), Card("10.0.0.2", 0, 2), Card("10.0.0.2", 1, 3)]
    content = table(ONE)
    content["server_list"][0]["device"].reverse()
    for device in content["server_list"][0]["device"]:
        del device["device_ip"]
    assert [card.rank for card in rank_tables.read_rank_table(write(content))] == [0, 1]


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
        rank_tables.read_rank_table(file)
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


# -- Built -----------------------------------------------------------------------------------------------


def test_a_server_by_its_file(hccn, run, monkeypatch):
    """As HCCL's own tool writes it, every value a text."""
    done = run(f"10.0.0.1={hccn}")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "version": "1.0", "server_count": "1", "status": "completed",
        "server_list": [{
            "server_id": "10.0.0.1", "host_nic_ip": "reserve",
            "device": [
                {"device_id": "0", "device_ip": "192.168.100.101", "rank_id": "0"},
                {"device_id": "1", "device_ip": "192.168.101.101", "rank_id": "1"},
            ],
        }],
    }  # fmt: skip
    monkeypatch.setattr(rank_tables, "HCCN", hccn)
    assert run("10.0.0.1").stdout == done.stdout


def test_several_servers_and_what_reads_them(hccn, run, tmp_path):
    """What is written is what `labkit launch` reads; ranks count through."""
    out = tmp_path / "rank_table_4p.json"
    done = run(f"10.0.0.2={hccn}", "10.0.0.1=5:192.168.105.102,4:192.168.104.102", "--out", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    cards = [(card.rank, card.server, card.device) for card in rank_tables.read_rank_table(out)]
    assert cards == [(0, "10.0.0.2", 0), (1, "10.0.0.2", 1), (2, "10.0.0.1", 4), (3, "10.0.0.1", 5)]


@pytest.mark.parametrize("arguments, says", [
    (("10.0.0.1=0:192.168.1",), "device_ip: "), (("10.0.0.1=0:192.168.1.1,x",), "must list each device once"),
    (("10.0.0.1=0:192.168.1.1", "--devices", "3"), "10.0.0.1: has no device 3, only 0"),
    (("10.0.0.1=nothing.conf",), "nothing.conf: cannot be read"),
])  # fmt: skip
def test_mistakes(run, arguments, says):
    done = run(*arguments)
    assert done.exit_code == 1 and says in done.stderr
    assert done.stderr.startswith("Error: ") and len(done.stderr.splitlines()) == 1
