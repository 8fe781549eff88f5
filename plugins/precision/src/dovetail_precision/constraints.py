"""The hard rules of typing: what a policy, a pin or a constant leaves a solver to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import FLOATS, promote

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["activations", "choices", "required_type", "reads_any_type", "legal_type", "TAKES_ANY"]


TAKES_ANY = frozenset({"Cast", "EyeLike", "RandomNormalLike", "RandomUniformLike"})
"""Operators whose result has a type of its own, whatever that of the input is."""


def activations(problem: TypingProblem, variable: Variable) -> list[ir.Value]:
    """The float inputs of `variable` that are no constants."""
    return [value for _, value in variable.inputs if not problem.is_constant(value)]


def required_type(variable: Variable) -> str | None:
    """The type that `variable` must have whatever is around it; None where that is for a solver to say."""
    policy, present = variable.policy, variable.present
    if policy == "pinned":
        return next(iter(variable.allowed)) if len(variable.allowed) == 1 else present
    # What the source model keeps in another type than float32 is somebody's choice already.
    if present != "float32" or policy in ("keep", "high", "follow-consumer"):
        return present
    if policy == "lower":
        return variable.low
    if policy in ("fp32", "fp32-accumulate", "fp32-round-trip", "angle"):
        return variable.high
    return None


def legal_type(problem: TypingProblem, variable: Variable, wanted: str) -> str:
    """What becomes of `wanted`: a type that holds the constants of `variable` and is allowed.

    That is `wanted` if possible, else the smallest allowed type that holds it, else the widest there is.
    """
    if wanted in FLOATS and problem.obstacle(variable, wanted):
        wanted = promote(wanted, variable.high)
    if wanted in variable.allowed:
        return wanted
    wider = [name for name in FLOATS if name in variable.allowed and name in FLOATS[wanted]]
    return wider[0] if wider else [name for name in FLOATS if name in variable.allowed][-1]


def choices(problem: TypingProblem, variable: Variable) -> tuple[str, str]:
    """The two types, low and high, that a solver which optimises may give `variable`; equal where it may not choose.

    It may choose where the policy is to hand on or promote what arrives, or where there is none, and where both the low
    type of the backend and float32 are allowed. What arrives may be weights alone, as in the Gather of an embedding.
    """
    wanted = required_type(variable)
    if wanted is None and variable.inputs:
        low = legal_type(problem, variable, variable.low) if variable.low in variable.allowed else ""
        high = legal_type(problem, variable, variable.present)
        return (low, high) if low == variable.low and high == variable.present else (high, high)
    only = legal_type(problem, variable, wanted or variable.present)
    return only, only


def reads_any_type(problem: TypingProblem, variable: Variable) -> bool:
    """Whether `variable` is an input that may be in either type, because it is converted, or only its shape is read."""
    node = variable.node
    if node.op_type not in TAKES_ANY or node.domain not in ("", "ai.onnx") or variable.outputs:
        return False
    low, high = choices(problem, variable)
    return low != high
