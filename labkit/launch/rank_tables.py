"""Rank tables: JSON files that list, for HCCL, the Ascend devices of each server that trains."""

from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, IPvAnyAddress, ValidationError, model_validator

from labkit.system.errors import LabkitError


class RankTableError(LabkitError):
    """A rank table that cannot be used: one line that names the file and the key."""


class _Device(BaseModel):
    device_id: int
    device_ip: IPvAnyAddress | None = None  # may be missing if there is only one server
    rank_id: int


class _Server(BaseModel):
    server_id: str
    device: list[_Device]


class _RankTable(BaseModel):
    """Version 1.0, as HCCL accepts it; in the file, numbers are strings."""

    version: Literal["1.0"]
    status: Literal["completed"] = "completed"
    server_count: int
    server_list: list[_Server]

    @model_validator(mode="after")
    def _consistent(self):
        servers, counts = [server.server_id for server in self.server_list], [len(s.device) for s in self.server_list]
        devices = [f"{device.device_id} of {s.server_id}" for s in self.server_list for device in s.device]
        addresses = [str(device.device_ip) for s in self.server_list for device in s.device if device.device_ip]
        ranks = sorted(device.rank_id for s in self.server_list for device in s.device)
        for key, values in (("server_id", servers), ("device_id", devices), ("device_ip", addresses)):
            if twice := [value for value in values if values.count(value) > 1]:
                raise ValueError(f"{key}: {twice[0]} is listed twice")
        if self.server_count != len(counts):
            raise ValueError(f"server_count: {self.server_count}, but server_list has {len(counts)}")
        if not ranks or ranks != list(range(len(ranks))):
            raise ValueError(f"rank_id: must count from 0 without a gap, not {ranks}")
        if len(set(counts)) > 1:
            raise ValueError(f"device: each server must have equally many, not {' and '.join(map(str, counts))}")
        return self


def local_cards(rank_table: Path, count: int) -> list[dict]:
    """Environment variables for the process of each card on this server, by rank; RankTableError names file and key.

    count: number of cards that the table must list, on all servers.
    """
    path = Path(rank_table)
    try:
        servers = _RankTable.model_validate_json(path.read_bytes()).server_list
    except OSError as error:
        raise RankTableError(f"{path}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors()[0]
        keys = [str(key) for key in first["loc"] if isinstance(key, str)]
        problem = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        raise RankTableError(": ".join([str(path), *keys[-1:], problem])) from None
    if (size := sum(len(server.device) for server in servers)) != count:
        raise RankTableError(f"{path}: lists {size} devices, not {count}")
    if len(servers) > 1:
        ours = {address.address for interface in psutil.net_if_addrs().values() for address in interface}
        servers = [server for server in servers if server.server_id in ours]
    if len(servers) != 1:
        names = " and ".join(server.server_id for server in servers)
        fault = f"{names} are both addresses" if servers else "no server has an address"
        raise RankTableError(f"{path}: server_id: {fault} of this machine")
    shared = {"RANK_TABLE_FILE": str(path.absolute()), "RANK_SIZE": str(size)}
    cards = sorted(servers[0].device, key=lambda device: device.rank_id)
    return [{**shared, "RANK_ID": str(card.rank_id), "DEVICE_ID": str(card.device_id)} for card in cards]
