"""The `forward` solver: the rule of autocast, applied once in graph order.

A node whose policy is `lower` goes low, one whose policy is `fp32` goes high, and any other node takes the type of its
inputs, as under torch.autocast (https://pytorch.org/docs/stable/amp.html). Constants and selects between constants
take the type of their peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.formats import float_format

from dovetail_precision.constant_selects import find_constant_selects, take_types_of_readers
from dovetail_precision.constraints import activations, legal_format, required_format
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.output_tails import raise_output_tails
from dovetail_precision.type_attributes import has_type_attribute

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["solve_forward"]


def solve_forward(problem: TypingProblem) -> None:
    """Choose a type for every variable of `problem`."""
    selects = find_constant_selects(problem)
    _sweep(problem, selects)
    followed = take_types_of_readers(problem, selects)
    if len(followed) < len(selects):
        # The remaining selects now count as inputs of their readers. If that raises further ones, give all of them up.
        selects = followed
        _sweep(problem, selects)
        followed = take_types_of_readers(problem, selects)
        if len(followed) < len(selects):
            followed = []
            _sweep(problem, followed)
    for variable in followed:
        variable.policy, variable.why = "follow-consumer", f"{variable.low}, as all of its readers do"
    raise_output_tails(problem)
    if any(map(has_type_attribute, problem.variables)):  # rare
        for chain in def_use_chains(problem):
            chain.adopt_type_of_readers()


def _sweep(problem: TypingProblem, selects: list[Variable]) -> None:
    """Choose types in graph order. `selects` do not count as inputs of their readers; they are typed afterwards."""
    # The type that the readers of a value assume, if it is not the type it is computed in.
    assumed_types: dict[int, Format] = {}
    selected = {id(value) for variable in selects for _, value in variable.outputs}

    def arriving(value: ir.Value) -> Format:
        known = assumed_types.get(id(value))
        if known is None:
            variable = problem.defined_by(value)
            known = variable.chosen if variable else float_format(value)
        return known

    for variable in problem.variables:
        arrives = activations(problem, variable)
        arrives = [value for value in arrives if id(value) not in selected] or arrives
        wanted = _wanted(variable, arrives, arriving)
        variable.chosen = legal_format(problem, variable, wanted)
        variable.because = ()
        if variable.chosen == variable.high:
            variable.because = tuple(_producers(problem, arrives, variable.high))
        back = arriving(arrives[0]) if variable.policy == "fp32-round-trip" and arrives else None
        if variable.chosen != wanted == variable.low and problem.ill_conditioned(variable, wanted):
            back = wanted  # readers of a raised statistic need not be raised with it
        if back is not None:
            for _, value in variable.outputs:
                assumed_types[id(value)] = back


def _wanted(variable: Variable, arrives: list[ir.Value], arriving) -> Format:
    wanted = required_format(variable)
    if wanted is not None:
        return wanted
    if variable.policy in ("", "recurse") or not arrives:
        return variable.present
    if variable.policy in ("pass", "none"):
        return arriving(arrives[0])
    first, *others = map(arriving, arrives)
    return first.join(*others)


def _producers(problem: TypingProblem, arrives: list[ir.Value], high: Format) -> list[ir.Node]:
    """Return the high producers of `arrives`."""
    found = []
    for value in arrives:
        variable = problem.defined_by(value)
        if variable is not None and variable.chosen == high:
            found.append(variable.node)
    return found
