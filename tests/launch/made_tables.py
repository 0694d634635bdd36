"""Rank tables for the tests."""


def table(*servers, **changes):
    """A rank table; each server is an address and its device ids."""
    rank, listed = iter(range(100)), []
    for address, ids in servers:
        cards = [{"device_id": str(card), "rank_id": str(next(rank))} for card in ids]
        for card in cards:
            card["device_ip"] = f"192.168.100.{int(card['rank_id']) + 1}"
        listed.append({"server_id": address, "device": cards, "host_nic_ip": "reserve"})
    return {"version": "1.0", "server_count": str(len(listed)), "server_list": listed, "status": "completed", **changes}
