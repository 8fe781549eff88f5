"""Nodes between the last low node and the model outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_precision.choices import uniform

if TYPE_CHECKING:
    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable


def raise_output_tails(problem: TypingProblem) -> None:
    """Keep pass-through nodes that feed only model outputs in float32.

    The cast then stands before such a node instead of behind it. That adds no cast, saves some where several of these
    nodes read one value, and avoids rounding the result. A Shape that also reads the value takes it in either type.
    """
    takers = _takers_of_any_type(problem)
    tail: set[int] = set()
    for variable in reversed(problem.variables):
        results = problem.results(variable.node)
        readers = [node for node in results.readers if id(node) not in takers]
        ends = readers or results.given or not results.readers
        if results.leaves_body or not ends or not all(id(node) in tail for node in readers):
            continue
        free = variable.policy in ("pass", "promote") and variable.present is variable.high in variable.choices.floats
        free = free and (problem.keeps_io_types or not results.given)
        if variable.format is not variable.high and free and len(variable.activations) <= 1:
            variable.chosen, variable.because = uniform(variable.high), ()
            variable.policy = "tail"
            for taker in (takers[id(node)] for node in results.readers if id(node) in takers):
                taker.chosen, taker.because = uniform(variable.high), (variable.node,)
        if variable.format is variable.high:
            tail.add(id(variable.node))


def _takers_of_any_type(problem: TypingProblem) -> dict[int, Variable]:
    """Nodes that compute no float and take their only float input in the high type as well as in any other."""
    found: dict[int, Variable] = {}
    others: set[int] = set()
    for variable in problem.variables:
        takes_any = variable.takes_any or variable.policy == "none"
        alone = takes_any and not variable.outputs and len(variable.inputs) == 1
        if alone and variable.high in variable.choices.floats:
            found[id(variable.node)] = variable
        else:
            others.add(id(variable.node))
    return {key: variable for key, variable in found.items() if key not in others}
