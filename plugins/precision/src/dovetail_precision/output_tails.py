"""Nodes between the last low node and the model outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_precision.choices import uniform

if TYPE_CHECKING:
    from dovetail_precision.problem import TypingProblem

__all__ = ["raise_output_tails"]


def raise_output_tails(problem: TypingProblem) -> None:
    """Keep pass-through nodes that feed only model outputs in float32.

    The cast then stands before such a node instead of behind it. That adds no cast, saves some where several of these
    nodes read one value, and avoids rounding the result.
    """
    tail: set[int] = set()
    for variable in reversed(problem.variables):
        results = problem.results(variable.node)
        if results.leaves_body or not all(id(node) in tail for node in results.readers):
            continue
        free = variable.policy in ("pass", "promote") and variable.present is variable.high in variable.choices.floats
        free = free and (problem.keeps_io_types or not results.given)
        if variable.format is not variable.high and free and len(variable.activations) <= 1:
            variable.chosen, variable.because = uniform(variable.high), ()
            variable.policy = "tail"
        if variable.format is variable.high:
            tail.add(id(variable.node))
