"""Rank tables that are built: from hccn.conf files, from arguments, of several servers; and every mistake in them."""

import json

import pytest
from click.testing import CliRunner

from labkit.cli import main
from labkit.launch import rank_tables
from labkit.launch.rank_tables import Card, RankTableError

HCCN = """\
address_0=192.168.100.101
netmask_0=255.255.255.0
netdetect_0=192.168.100.1

address_1 = 192.168.101.101
send_arp_status_0=1
"""


@pytest.fixture
def hccn(tmp_path):
    """Function that writes a hccn.conf and returns its path."""

    def hccn(text=HCCN, name="hccn.conf"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / name

    return hccn


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, ["rank-table", *map(str, arguments)])


def test_a_server_by_its_file(hccn, run):
    """As HCCL's own tool writes it, every value a text."""
    done = run(f"10.0.0.1={hccn()}")
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


def test_this_server(hccn, run, monkeypatch):
    monkeypatch.setattr(rank_tables, "HCCN", hccn())
    assert run("10.0.0.1").stdout == run(f"10.0.0.1={hccn()}").stdout


def test_several_servers_and_what_reads_them(hccn, run, tmp_path):
    """What is written is what `labkit launch` reads; ranks count through."""
    out = tmp_path / "rank_table_4p.json"
    done = run(f"10.0.0.2={hccn()}", "10.0.0.1=5:192.168.105.102,4:192.168.104.102", "--out", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    assert rank_tables.read_rank_table(out) == [
        Card("10.0.0.2", 0, 0), Card("10.0.0.2", 1, 1), Card("10.0.0.1", 4, 2), Card("10.0.0.1", 5, 3)
    ]  # fmt: skip
    checked = run("--check", out)
    assert [line.split() for line in checked.stdout.splitlines()[1:]] == [
        ["0", "10.0.0.2", "0"], ["1", "10.0.0.2", "1"], ["2", "10.0.0.1", "4"], ["3", "10.0.0.1", "5"]
    ]  # fmt: skip


def test_some_devices(run):
    done = run("10.0.0.1=0:192.168.1.1,1:192.168.1.2,7:192.168.1.8", "--devices", "7,1")
    devices = json.loads(done.stdout)["server_list"][0]["device"]
    assert [(d["device_id"], d["device_ip"], d["rank_id"]) for d in devices] == [
        ("1", "192.168.1.2", "0"), ("7", "192.168.1.8", "1")
    ]  # fmt: skip


@pytest.mark.parametrize("text, says", [
    ("", "address_0: missing"), ("netmask_0=255.255.255.0\n", "address_0: missing"),
    ("address_0\n", "line 1: address_0: must be"), ("\naddress_x=1.2.3.4\n", "line 2: address_x: must be"),
    ("address_0=\n", "line 1: address_0: '' is no IP address"),
    ("address_0=192.168.100.256\n", "line 1: address_0: '192.168.100.256' is no IP address"),
    ("address_0=192.168.100.1\naddress_0=192.168.100.2\n", "line 2: address_0: named twice"),
    (b"address_0=\xff", "not text"),
])  # fmt: skip
def test_a_file_that_is_wrong(hccn, text, says):
    file = hccn(text)
    with pytest.raises(RankTableError, match=rf"^{file}.*{says}"):
        rank_tables.read_hccn(file)


@pytest.mark.parametrize("arguments, says", [
    (("10.0.0.1=nothing.conf",), "nothing.conf: cannot be read"),
    (("node-1=0:192.168.1.1",), "'node-1' is no IP address"),
    (("10.0.0.1=0:192.168.1",), "device 0: '192.168.1' is no IP address"),
    (("10.0.0.1=0:192.168.1.1,x",), "'x' must be DEVICE:ADDRESS"),
    (("10.0.0.1=0:192.168.1.1,0:192.168.1.2",), "device 0: named twice"),
    (("10.0.0.1=0:192.168.1.1", "10.0.0.1=1:192.168.1.2"), "10.0.0.1: named twice"),
    (("10.0.0.1=0:192.168.1.1", "10.0.0.2=0:192.168.1.1"), "10.0.0.2: device 0: 192.168.1.1 is the address of"),
    (("10.0.0.1=0:192.168.1.1", "--devices", "3"), "10.0.0.1: it has no device 3, only 0"),
    (("10.0.0.1=0:192.168.1.1,1:192.168.1.2", "10.0.0.2=0:192.168.1.3"),
     "devices: must be as many on each server, not 2 and 1"),
    (("--check", "nothing.json"), "nothing.json: cannot be read"),
])  # fmt: skip
def test_mistakes(run, arguments, says):
    done = run(*arguments)
    assert done.exit_code == 1 and says in done.stderr
    assert done.stderr.startswith("Error: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [
    (), ("10.0.0.1=0:192.168.1.1", "--check", "x.json"), ("10.0.0.1=0:192.168.1.1", "--devices", "a"),
])  # fmt: skip
def test_wrong_usage(run, arguments):
    assert run(*arguments).exit_code == 2
