"""Selects and fills of constants, such as attention masks or initial states: all elements come from constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_precision.choices import uniform
from dovetail_precision.constraints import follows_readers, legal_format, required_format
from dovetail_precision.def_use import def_use_chains

if TYPE_CHECKING:
    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable


def find_constant_selects(problem: TypingProblem) -> list[Variable]:
    """Return every pick between constants, every constant fill, and the data movement behind them, in graph order.

    Like a constant, such a value can take the type of its peers: its constants are then stored in that type.
    """
    found: list[Variable] = []
    values: set[int] = set()
    for variable in problem.variables:
        select = variable.select
        if not select or variable.choices.quantised:
            continue
        fills = select == "fill" and follows_readers(variable)
        picks = select == "pick" or fills
        if not picks and not (values and select == "move"):
            continue
        if not fills and required_format(variable) is not None:
            continue
        read = variable.activations
        if (picks or read) and values.issuperset(map(id, read)):
            found.append(variable)
            values.update(id(value) for _, value in variable.outputs)
    return found


def take_types_of_readers(problem: TypingProblem, selects: list[Variable]) -> list[Variable]:
    """Type a select low if all of its readers, which must be typed already, read it low; return those selects."""
    if not selects:
        return []
    chains = {id(chain.value): chain for chain in def_use_chains(problem)}
    followed = []
    for variable in reversed(selects):  # readers first
        wanted = set().union(*(chains[id(value)].wanted for _, value in variable.outputs))
        if wanted == {variable.low} == {legal_format(problem, variable, variable.low)}:
            variable.chosen, variable.because = uniform(variable.low), ()
            followed.append(variable)
    return followed[::-1]
