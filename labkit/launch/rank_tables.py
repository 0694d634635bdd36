"""Rank tables: JSON files that list, for HCCL, the Ascend devices of each server that trains."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, IPvAnyAddress, ValidationError, model_validator

from labkit.system.errors import LabkitError


class RankTableError(LabkitError):
    """A rank table that cannot be used: one line that names the file and the key."""


class Device(BaseModel):
    """An Ascend device; if there is only one server, its address may be missing."""

    device_id: int
    device_ip: IPvAnyAddress | None = None
    rank_id: int


class Server(BaseModel):
    """A server and its devices."""

    server_id: str
    device: list[Device]


class RankTable(BaseModel):
    """A rank table of version 1.0, as HCCL accepts it; in the file, numbers are strings."""

    version: Literal["1.0"]
    status: Literal["completed"] = "completed"
    server_count: int
    server_list: list[Server]

    @model_validator(mode="after")
    def _consistent(self):
        devices = [(server.server_id, device) for server in self.server_list for device in server.device]
        ranks, counts = sorted(device.rank_id for _, device in devices), [len(s.device) for s in self.server_list]
        _require_different("server_id", [server.server_id for server in self.server_list])
        _require_different("device_id", [f"{device.device_id} of {server}" for server, device in devices])
        _require_different("device_ip", [device.device_ip for _, device in devices if device.device_ip])
        if self.server_count != len(counts):
            raise ValueError(f"server_count: {self.server_count}, but server_list has {len(counts)}")
        if not ranks or ranks != list(range(len(ranks))):
            raise ValueError(f"rank_id: must count from 0 without a gap, not {ranks}")
        if len(set(counts)) > 1:
            raise ValueError(f"device: each server must have equally many, not {' and '.join(map(str, counts))}")
        return self


def _require_different(key, values):
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{key}: {value} is listed twice")


@dataclass(frozen=True)
class Card:
    """An Ascend device in a rank table."""

    server: str
    device: int
    rank: int


def read_rank_table(path: Path) -> list[Card]:
    """Cards of an Ascend rank table (JSON, version 1.0), by rank. Raises RankTableError, which names file and key."""
    try:
        table = RankTable.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise RankTableError(f"{path}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors()[0]
        keys = [str(key) for key in first["loc"] if isinstance(key, str)]
        problem = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        raise RankTableError(": ".join([str(path), *keys[-1:], problem])) from None
    cards = [Card(s.server_id, d.device_id, d.rank_id) for s in table.server_list for d in s.device]
    return sorted(cards, key=lambda card: card.rank)


def local_cards(rank_table: Path, count: int) -> list[dict]:
    """Environment variables for the process of each card on this server. Raises RankTableError.

    count: number of cards that the table must list, on all servers.
    """
    path = Path(rank_table)
    cards = read_rank_table(path)
    if len(cards) != count:
        raise RankTableError(f"{path}: lists {len(cards)} devices, not {count}")
    servers = {card.server for card in cards}
    if len(servers) > 1:
        servers &= {address.address for interface in psutil.net_if_addrs().values() for address in interface}
    if len(servers) != 1:
        fault = f"{' and '.join(sorted(servers))} are both addresses" if servers else "no server has an address"
        raise RankTableError(f"{path}: server_id: {fault} of this machine")
    size, table = str(len(cards)), str(path.absolute())
    return [
        {"RANK_TABLE_FILE": table, "RANK_SIZE": size, "RANK_ID": str(card.rank), "DEVICE_ID": str(card.device)}
        for card in cards
        if card.server in servers
    ]
