"""Speed beside peers, by turns: `make bench`."""


def rotated(peers: list, turn: int) -> list:
    """The peers in the order of this turn: each begins equally often."""
    begin = turn % len(peers)
    return peers[begin:] + peers[:begin]
