"""Port D, at the size at which its author compared it."""

from d import candidate, candidate_loss, candidate_optimizer, reference, reference_loss, reference_optimizer  # noqa: F401

SHAPE = (8, 3, 16, 16)
