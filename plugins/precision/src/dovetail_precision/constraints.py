"""Hard constraints of typing: the choices that policies, pins and constants leave to a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.formats import FLOAT32, FLOAT_FORMATS

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["activations", "choices", "required_format", "reads_any_type", "legal_format", "TAKES_ANY"]


TAKES_ANY = frozenset({"Cast", "EyeLike", "RandomNormalLike", "RandomUniformLike"})
"""Operators whose output type does not depend on the input type."""


def activations(problem: TypingProblem, variable: Variable) -> list[ir.Value]:
    """Return the float inputs of `variable` that are not constants."""
    return [value for _, value in variable.inputs if not problem.is_constant(value)]


def required_format(variable: Variable) -> Format | None:
    """Return the format that policy or pin require for `variable`; None if the solver may choose."""
    policy, present = variable.policy, variable.present
    if policy == "pinned":
        return next(iter(variable.allowed)) if len(variable.allowed) == 1 else present
    # A type other than float32 in the source model is deliberate.
    if present is not FLOAT32 or policy in ("keep", "high", "follow-consumer"):
        return present
    if policy == "lower":
        return variable.low
    if policy in ("fp32", "fp32-accumulate", "fp32-round-trip", "angle"):
        return variable.high
    return None


def legal_format(problem: TypingProblem, variable: Variable, wanted: Format) -> Format:
    """Return the legal format closest to `wanted`.

    That is `wanted` if it is allowed and nothing speaks against it, else the smallest allowed type that holds it, else
    the widest allowed type.
    """
    if wanted.is_float and problem.obstacle(variable, wanted):
        wanted = wanted.join(variable.high)
    if wanted in variable.allowed:
        return wanted
    known = [format_ for format_ in FLOAT_FORMATS if format_ in variable.allowed]
    return next((format_ for format_ in known if wanted.fits_in(format_)), known[-1])


def choices(problem: TypingProblem, variable: Variable) -> tuple[Format, Format]:
    """Return the low and the high format that an optimising solver may give `variable`; equal if it has no choice.

    It has a choice if no policy requires a type (`pass`, `promote`, `none` or no policy) and both the low type of the
    backend and float32 are legal. The inputs may all be weights, as in the Gather of an embedding.
    """
    wanted = required_format(variable)
    if wanted is None and variable.inputs:
        low = legal_format(problem, variable, variable.low) if variable.low in variable.allowed else None
        high = legal_format(problem, variable, variable.present)
        return (low, high) if low is variable.low and high is variable.present else (high, high)
    only = legal_format(problem, variable, wanted or variable.present)
    return only, only


def reads_any_type(problem: TypingProblem, variable: Variable) -> bool:
    """Whether `variable` is an input that accepts any type: a Cast converts it, or only its shape is read."""
    node = variable.node
    if node.op_type not in TAKES_ANY or node.domain not in ("", "ai.onnx") or variable.outputs:
        return False
    low, high = choices(problem, variable)
    return low != high
