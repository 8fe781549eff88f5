"""The `forward` solver: the rule of autocast, applied once in graph order.

A node whose policy is `lower` goes low, one whose policy is `fp32` goes high, and any other node takes the type of its
inputs, as under torch.autocast (https://pytorch.org/docs/stable/amp.html). Constants and selects between constants
take the type of their peers. A node that may be quantized takes its first choice if its policy or role goes low, and
otherwise the one that reads its input as it arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.ir import Format

from dovetail_precision.choices import FormatChoice, uniform
from dovetail_precision.constraints import (
    follows_readers,
    legal_choice,
    legal_format,
    required_choice,
    required_format,
)
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.graph_patterns import find_constant_selects, raise_output_tails, take_types_of_readers

if TYPE_CHECKING:
    from typing import Any

    from dovetail_precision.problem import FormatVariable, TypingProblem, Value


_FOLLOWING = ("pass", "none", "passive")  # policies that take the format of the first input


def solve_forward(problem: TypingProblem) -> None:
    """Choose formats for every variable of `problem`."""
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
    if any(map(follows_readers, problem.variables)):  # rare
        for chain in def_use_chains(problem):
            chain.adopt_type_of_readers()


def _sweep(problem: TypingProblem, selects: list[FormatVariable]) -> None:
    """Choose in graph order. `selects` do not count as inputs of their readers; they are typed afterwards."""
    # The format that the readers of a value assume, if it is not the one it is computed in.
    assumed: dict[int, Format] = {}
    selected = {id(value) for variable in selects for _, value in variable.outputs}

    def arriving(value: Value) -> Format:
        known = assumed.get(id(value))
        if known is None:
            variable = problem.defined_by(value)
            known = variable.chosen.format_of(problem.port_of(value)) if variable else value.present
        return known

    for variable in problem.variables:
        arrives = variable.activations
        if selected:
            arrives = [value for value in arrives if id(value) not in selected] or arrives
        variable.because, back = (), None

        def arriving_here(value: Value, reader: FormatVariable = variable) -> Format:
            known = arriving(value)
            return reader.high if known.is_float and reader.shares_high_border(problem.defined_by(value)) else known

        if variable.choices.quantized:
            variable.chosen = _quantized(problem, variable, arrives, arriving_here)
        else:
            wanted = _wanted(variable, arrives, arriving_here)
            chosen = legal_format(problem, variable, wanted)
            variable.chosen = uniform(chosen)
            if variable.policy == "fp32-round-trip" and arrives:
                back = arriving(arrives[0])
            if chosen is not wanted and wanted is variable.low and problem.ill_conditioned(variable, wanted):
                back = wanted  # users of a raised statistic need not be raised with it
            if variable.normalizes and any(arriving(value) is variable.low for value in arrives):
                back = variable.low  # nor need users of a value divided by it
        if variable.format is variable.high:
            variable.because = tuple(_producers(problem, arrives, variable.high))
        if back is not None:
            for _, value in variable.outputs:
                assumed[id(value)] = back


def _wanted(variable: FormatVariable, arrives: list[Value], arriving: Callable[[Value], Format]) -> Format:
    """Return the float format that policy and inputs ask for."""
    wanted = required_format(variable)
    if wanted is not None:
        return wanted
    if variable.policy in ("", "recurse") or not arrives:
        return variable.present
    if variable.policy in _FOLLOWING:
        return _expressed(arriving(arrives[0]))
    first, *others = map(arriving, arrives)
    return _expressed(first.join(*others))


def _expressed(format_: Format) -> Format:
    return Format.of(format_.computes_in) if format_.quantized else format_


def _quantized(
    problem: TypingProblem, variable: FormatVariable, arrives: list[Value], arriving: Callable[[Value], Format]
) -> FormatChoice:
    """Return the choice of a variable that may be quantized."""
    required = required_choice(problem, variable)
    if required is not None:
        return required
    if not arrives or variable.policy in ("", "recurse"):
        return legal_choice(problem, variable, variable.present)
    first, *others = map(arriving, arrives)
    follows = variable.policy in _FOLLOWING
    return legal_choice(problem, variable, first if follows else first.join(*others))


def _producers(problem: TypingProblem, arrives: list[Value], high: Format) -> list[Any]:
    """Return the high producers of `arrives`."""
    found = []
    for value in arrives:
        variable = problem.defined_by(value)
        if variable is not None and variable.format is high:
            found.append(variable.node)
    return found
