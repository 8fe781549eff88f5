"""The `forward` solver: autocast's rule, applied once in graph order.

Types come from the source model: a node whose policy is `lower` goes low, one whose policy is `fp32` goes high, and
whatever lies between takes the type that reaches it, as under torch.autocast
(https://pytorch.org/docs/stable/amp.html). Constants take the type of their peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import FLOATS, float_name, promote

from dovetail_precision.fits import fits

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem, Variable

__all__ = ["solve_forward"]


def solve_forward(problem: TypingProblem) -> None:
    """Choose a type for every variable of `problem`."""
    # What the readers of a value take it for, where that is not the type it is computed in.
    taken_for: dict[int, str] = {}

    def arriving(value: ir.Value) -> str:
        known = taken_for.get(id(value))
        if known is None:
            variable = problem.defined_by(value)
            known = variable.chosen if variable else float_name(value)
        return known

    for variable in problem.variables:
        activations, constants = [], []
        for _, value in variable.inputs:
            (constants if problem.is_constant(value) else activations).append(value)
        wanted = _wanted(variable, activations, arriving)
        if wanted in FLOATS and not all(fits(value.const_value, wanted) for value in constants):
            wanted = promote(wanted, variable.high)
        variable.chosen = _nearest(variable, wanted)
        if variable.chosen == variable.high:
            variable.because = tuple(_producers(problem, activations, variable.high)) if activations else ()
        if variable.policy == "fp32-round-trip" and activations:
            back = arriving(activations[0])
            for _, value in variable.outputs:
                taken_for[id(value)] = back
    if problem.keeps_io_types:
        _raise_tails(problem)


def _raise_tails(problem: TypingProblem) -> None:
    """Compute high what only leads to outputs of the model, and only hands on or promotes what reaches it.

    The conversion to the output's type then stands before such a node instead of behind it: there are no more
    conversions, and its result is not rounded.
    """
    outputs = {id(value) for value in problem.model.graph.outputs}
    raised: set[int] = set()
    for variable in reversed(problem.variables):
        if variable.policy not in ("pass", "promote") or variable.chosen == variable.present:
            continue
        leads_out = variable.outputs and all(
            (id(value) in outputs or value.uses()) and all(id(node) in raised for node, _ in value.uses())
            for _, value in variable.outputs
        )
        activations = sum(not problem.is_constant(value) for _, value in variable.inputs)
        if leads_out and activations <= 1 and variable.present in variable.allowed:
            variable.chosen, variable.because = variable.present, ()
            variable.policy = "tail"
            raised.add(id(variable.node))


def _wanted(variable: Variable, activations: list, arriving) -> str:
    policy, present = variable.policy, variable.present
    if policy == "pinned":
        return next(iter(variable.allowed)) if len(variable.allowed) == 1 else present
    # What the source model keeps in another type than float32 is somebody's choice already.
    if present != "float32" or policy in ("", "keep", "recurse", "follow-consumer"):
        return present
    if policy == "lower":
        return variable.low
    if policy in ("fp32", "fp32-accumulate", "fp32-round-trip"):
        return variable.high
    if not activations:
        return present
    if policy in ("pass", "none"):
        return arriving(activations[0])
    return promote(*map(arriving, activations))


def _nearest(variable: Variable, wanted: str) -> str:
    """`wanted` if it is allowed, else the smallest allowed type that holds it, else the widest there is."""
    if wanted in variable.allowed:
        return wanted
    wider = [name for name in FLOATS if name in variable.allowed and name in FLOATS[wanted]]
    return wider[0] if wider else [name for name in FLOATS if name in variable.allowed][-1]


def _producers(problem: TypingProblem, activations: list, high: str) -> list[ir.Node]:
    """The nodes whose high results reach this one."""
    found = []
    for value in activations:
        variable = problem.defined_by(value)
        if variable is not None and variable.chosen == high:
            found.append(variable.node)
    return found
