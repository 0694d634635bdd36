"""Data: files on disk, and the pipelines that feed them to a network."""

RANK_STRIDE = 1009  # between the ranks' seeds: MindData gives worker k of a rank the seed + k


def rank_seed(seed: int, rank: int) -> int:
    """MindData's seed for a rank's random operations; workers of different ranks never get the same one."""
    return (seed + RANK_STRIDE * rank) % 2**32
