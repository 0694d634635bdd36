"""THOR: a second-order optimizer with Kronecker-factored curvature, written for any MindSpore device, tried on CPUs."""

from labkit.thor.inverses import damped_inverse, precondition
from labkit.thor.layer import ThorError, ThorLayer, convert
from labkit.thor.optimizer import TRACE_RULES, Thor, trace_rule
from labkit.thor.step import ThorStep

__all__ = [
    "TRACE_RULES",
    "Thor",
    "ThorError",
    "ThorLayer",
    "ThorStep",
    "convert",
    "damped_inverse",
    "precondition",
    "trace_rule",
]
