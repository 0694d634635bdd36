"""THOR: a second-order optimizer with Kronecker-factored curvature, on any MindSpore device."""

from labkit.thor.optimizer import TRACE_RULES, Thor, damped_inverse, precondition, trace_rule
from labkit.thor.statistics import ThorError, ThorLayer, convert
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
