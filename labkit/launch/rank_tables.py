"""Rank tables: which Ascend devices of which servers train together, in the file (JSON) that their HCCL reads."""

import json
import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil

from labkit.system.errors import LabkitError

HCCN = Path("/etc/hccn.conf")  # where an Ascend server keeps its devices' addresses


class RankTableError(LabkitError):
    """A rank table that cannot be read or built: one line that names the file or server, and the key or device."""


@dataclass(frozen=True)
class Card:
    """An Ascend device in a rank table."""

    server: str
    device: int
    rank: int


def read_rank_table(path: Path) -> list[Card]:
    """Cards of an Ascend rank table (JSON, version 1.0), by rank. Raises RankTableError, with file and key."""
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RankTableError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise RankTableError(f"{path}: not a rank table: not valid JSON ({error})") from None
    cards = []
    try:
        if table["version"] != "1.0":
            raise RankTableError(f"{path}: version: must be '1.0', not {table['version']!r}")
        if table.get("status", "completed") != "completed":
            raise RankTableError(f"{path}: status: must be 'completed', not {table['status']!r}")
        for server in table["server_list"]:
            for card in server["device"]:
                if "device_ip" in card:  # which a table of one server may leave out
                    _require_address(card["device_ip"], f"{path}: device_ip")
                cards.append(Card(server["server_id"], int(card["device_id"]), int(card["rank_id"])))
        servers, devices = len(table["server_list"]), len({(card.server, card.device) for card in cards})
        counts = [len(server["device"]) for server in table["server_list"]]
        if len({server["server_id"] for server in table["server_list"]}) < servers:
            raise RankTableError(f"{path}: server_id: a server is listed twice")
        if int(table.get("server_count", servers)) != servers:
            raise RankTableError(f"{path}: server_count: {table['server_count']}, but server_list has {servers}")
    except KeyError as error:
        raise RankTableError(f"{path}: {error.args[0]}: missing") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise RankTableError(f"{path}: not a rank table of version 1.0 ({error})") from None
    cards.sort(key=lambda card: card.rank)
    if not cards or [card.rank for card in cards] != list(range(len(cards))):
        raise RankTableError(f"{path}: rank_id: must count from 0 without a gap, not {[card.rank for card in cards]}")
    if devices != len(cards):
        raise RankTableError(f"{path}: device_id: a server lists a device twice")
    if len(set(counts)) > 1:  # HCCL refuses such a table
        raise RankTableError(f"{path}: device: must be as many on each server, not {' and '.join(map(str, counts))}")
    return cards


def local_cards(rank_table: Path, count: int) -> list[dict]:
    """Environment variables for the process of each of this server's cards; the table must list `count` cards.

    Raises RankTableError.
    """
    path = Path(rank_table)
    cards = read_rank_table(path)
    if len(cards) != count:
        raise RankTableError(f"{path}: lists {len(cards)} devices, not {count}")
    servers = {card.server for card in cards}
    if len(servers) > 1:
        servers &= {address.address for found in psutil.net_if_addrs().values() for address in found}
    if len(servers) != 1:
        which = f"{' and '.join(sorted(servers))} are both" if servers else "none of its servers has"
        raise RankTableError(f"{path}: server_id: {which} an address of this machine")
    size, table = str(len(cards)), str(path.absolute())
    return [
        {"RANK_TABLE_FILE": table, "RANK_SIZE": size, "RANK_ID": str(card.rank), "DEVICE_ID": str(card.device)}
        for card in cards
        if card.server in servers
    ]


def read_hccn(path: Path) -> dict[int, str]:
    """Device ids and addresses of a server's hccn.conf (`address_0=192.168.100.101`); raises RankTableError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise RankTableError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise RankTableError(f"{path}: not text") from None
    devices = {}
    for number, line in enumerate(lines, start=1):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not key.startswith("address_"):  # netmask_0, gateway_0 and others
            continue
        if not equals or not re.fullmatch(r"address_\d+", key):
            raise RankTableError(f"{path}, line {number}: {key}: must be address_DEVICE=ADDRESS")
        _add(devices, int(key.removeprefix("address_")), value, f"{path}, line {number}: {key}")
    if not devices:
        raise RankTableError(f"{path}: address_0: missing: it names no device")
    return devices


def parse_server(text: str) -> tuple[str, dict[int, str]]:
    """Address and devices of a server written ADDRESS, ADDRESS=HCCN_CONF or ADDRESS=DEVICE:ADDRESS,...

    ADDRESS alone is this machine's, with the devices of /etc/hccn.conf. Raises RankTableError.
    """
    server, equals, rest = text.partition("=")
    _require_address(server, text)
    if not equals:
        return server, read_hccn(HCCN)
    if not re.match(r"\d+:", rest):
        return server, read_hccn(Path(rest))
    devices = {}
    for word in rest.split(","):
        number, colon, address = word.partition(":")
        if not colon or not re.fullmatch(r"\d+", number):
            raise RankTableError(f"{text}: {word!r} must be DEVICE:ADDRESS, such as 0:192.168.100.101")
        _add(devices, int(number), address, f"{text}: device {number}")
    return server, devices


def build(servers: list[tuple[str, dict[int, str]]], chosen: tuple[int, ...] = ()) -> dict:
    """The rank table of servers, with the ranks in their order.

    chosen: device ids to use on each server; default: all. Raises RankTableError.
    """
    rank, listed, seen, addresses = 0, [], set(), {}
    for server, devices in servers:
        if server in seen:
            raise RankTableError(f"{server}: named twice")
        seen.add(server)
        if missing := [number for number in chosen if number not in devices]:
            there = ", ".join(map(str, sorted(devices)))
            raise RankTableError(f"{server}: it has no device {missing[0]}, only {there}")
        entries = []
        for number in sorted(chosen or devices):
            address = devices[number]
            if address in addresses:
                raise RankTableError(f"{server}: device {number}: {address} is the address of {addresses[address]} too")
            addresses[address] = f"{server}, device {number}"
            entries.append({"device_id": str(number), "device_ip": address, "rank_id": str(rank)})
            rank += 1
        listed.append({"server_id": server, "device": entries, "host_nic_ip": "reserve"})
    counts = [len(entry["device"]) for entry in listed]
    if len(set(counts)) > 1:  # HCCL refuses such a table
        raise RankTableError(f"devices: must be as many on each server, not {' and '.join(map(str, counts))}")
    return {"version": "1.0", "server_count": str(len(listed)), "server_list": listed, "status": "completed"}


def _add(devices, number, address, what):
    _require_address(address, what)
    if number in devices:
        raise RankTableError(f"{what}: named twice")
    devices[number] = address


def _require_address(address, what):
    try:
        ip_address(str(address))  # it would accept a number
    except ValueError:
        raise RankTableError(f"{what}: {address!r} is no IP address") from None
