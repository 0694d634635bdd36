"""THOR: a second-order optimizer with Kronecker-factored curvature, written for any MindSpore device, tried on CPUs."""

from labkit.thor.convert import convert
from labkit.thor.inverses import damped_inverse, precondition
from labkit.thor.layer import ThorError, ThorLayer
from labkit.thor.preconditioner import TRACE_RULES, Preconditioner, trace_rule
from labkit.thor.step import ThorStep
from labkit.thor.steps import damping, factor_steps

__all__ = ["TRACE_RULES", "Preconditioner", "ThorError", "ThorLayer", "ThorStep", "convert", "damped_inverse",
           "damping", "factor_steps", "precondition", "trace_rule"]  # fmt: skip
