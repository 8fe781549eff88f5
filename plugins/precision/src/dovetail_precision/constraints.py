"""Hard constraints of typing: the choices that policies, pins and constants leave to a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import FLOATS, promote

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["activations", "choices", "required_type", "reads_any_type", "legal_type", "TAKES_ANY"]


TAKES_ANY = frozenset({"Cast", "EyeLike", "RandomNormalLike", "RandomUniformLike"})
"""Operators whose output type does not depend on the input type."""


def activations(problem: TypingProblem, variable: Variable) -> list[ir.Value]:
    """Return the float inputs of `variable` that are not constants."""
    return [value for _, value in variable.inputs if not problem.is_constant(value)]


def required_type(variable: Variable) -> str | None:
    """Return the type that policy or pin require for `variable`; None if the solver may choose."""
    policy, present = variable.policy, variable.present
    if policy == "pinned":
        return next(iter(variable.allowed)) if len(variable.allowed) == 1 else present
    # A type other than float32 in the source model is deliberate.
    if present != "float32" or policy in ("keep", "high", "follow-consumer"):
        return present
    if policy == "lower":
        return variable.low
    if policy in ("fp32", "fp32-accumulate", "fp32-round-trip", "angle"):
        return variable.high
    return None


def legal_type(problem: TypingProblem, variable: Variable, wanted: str) -> str:
    """Return the legal type closest to `wanted`.

    That is `wanted` if it is allowed and nothing speaks against it, else the smallest allowed type that holds it, else
    the widest allowed type.
    """
    if wanted in FLOATS and problem.obstacle(variable, wanted):
        wanted = promote(wanted, variable.high)
    if wanted in variable.allowed:
        return wanted
    wider = [name for name in FLOATS if name in variable.allowed and name in FLOATS[wanted]]
    return wider[0] if wider else [name for name in FLOATS if name in variable.allowed][-1]


def choices(problem: TypingProblem, variable: Variable) -> tuple[str, str]:
    """Return the low and the high type that an optimising solver may give `variable`; equal if it has no choice.

    It has a choice if no policy requires a type (`pass`, `promote`, `none` or no policy) and both the low type of the
    backend and float32 are legal. The inputs may all be weights, as in the Gather of an embedding.
    """
    wanted = required_type(variable)
    if wanted is None and variable.inputs:
        low = legal_type(problem, variable, variable.low) if variable.low in variable.allowed else ""
        high = legal_type(problem, variable, variable.present)
        return (low, high) if low == variable.low and high == variable.present else (high, high)
    only = legal_type(problem, variable, wanted or variable.present)
    return only, only


def reads_any_type(problem: TypingProblem, variable: Variable) -> bool:
    """Whether `variable` is an input that accepts any type: a Cast converts it, or only its shape is read."""
    node = variable.node
    if node.op_type not in TAKES_ANY or node.domain not in ("", "ai.onnx") or variable.outputs:
        return False
    low, high = choices(problem, variable)
    return low != high
