"""The `forward` solver: autocast's rule, applied once in graph order.

Types come from the source model: a node whose policy is `lower` goes low, one whose policy is `fp32` goes high, and
whatever lies between takes the type that reaches it, as under torch.autocast
(https://pytorch.org/docs/stable/amp.html). Constants take the type of their peers, and so do selects of constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import float_name, promote

from dovetail_precision.constant_selects import find_constant_selects, take_types_of_readers
from dovetail_precision.constraints import activations, legal_type, required_type
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.output_tails import raise_output_tails
from dovetail_precision.type_attributes import has_type_attribute

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["solve_forward"]


def solve_forward(problem: TypingProblem) -> None:
    """Choose a type for every variable of `problem`."""
    selects = find_constant_selects(problem)
    _sweep(problem, selects)
    followed = take_types_of_readers(problem, selects)
    if len(followed) < len(selects):
        # The others count like any value for what they reach; where that takes more of them along, all do.
        selects = followed
        _sweep(problem, selects)
        followed = take_types_of_readers(problem, selects)
        if len(followed) < len(selects):
            followed = []
            _sweep(problem, followed)
    for variable in followed:
        variable.policy, variable.why = "follow-consumer", f"{variable.low}, as all of its readers want it"
    raise_output_tails(problem)
    if any(map(has_type_attribute, problem.variables)):  # in nearly all models none does
        for chain in def_use_chains(problem):
            chain.adopt_type_of_readers()


def _sweep(problem: TypingProblem, selects: list[Variable]) -> None:
    """Choose types in graph order; those of `selects`, which count for nothing, come later."""
    # What the readers of a value take it for, where that is not the type it is computed in.
    taken_for: dict[int, str] = {}
    selected = {id(value) for variable in selects for _, value in variable.outputs}

    def arriving(value: ir.Value) -> str:
        known = taken_for.get(id(value))
        if known is None:
            variable = problem.defined_by(value)
            known = variable.chosen if variable else float_name(value)
        return known

    for variable in problem.variables:
        arrives = activations(problem, variable)
        arrives = [value for value in arrives if id(value) not in selected] or arrives
        wanted = _wanted(variable, arrives, arriving)
        variable.chosen = legal_type(problem, variable, wanted)
        variable.because = ()
        if variable.chosen == variable.high:
            variable.because = tuple(_producers(problem, arrives, variable.high))
        back = arriving(arrives[0]) if variable.policy == "fp32-round-trip" and arrives else ""
        if variable.chosen != wanted == variable.low and problem.ill_conditioned(variable, wanted):
            back = wanted  # what is computed from a statistic need not have its digits
        if back:
            for _, value in variable.outputs:
                taken_for[id(value)] = back


def _wanted(variable: Variable, arrives: list[ir.Value], arriving) -> str:
    wanted = required_type(variable)
    if wanted is not None:
        return wanted
    if variable.policy in ("", "recurse") or not arrives:
        return variable.present
    if variable.policy in ("pass", "none"):
        return arriving(arrives[0])
    return promote(*map(arriving, arrives))


def _producers(problem: TypingProblem, arrives: list[ir.Value], high: str) -> list[ir.Node]:
    """The nodes whose high results reach this one."""
    found = []
    for value in arrives:
        variable = problem.defined_by(value)
        if variable is not None and variable.chosen == high:
            found.append(variable.node)
    return found
