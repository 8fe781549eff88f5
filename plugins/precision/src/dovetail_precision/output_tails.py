"""Tails: what follows the last low results of a model on its way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_precision.constraints import activations

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem

__all__ = ["raise_output_tails"]


def raise_output_tails(problem: TypingProblem) -> None:
    """Compute high what only leads out of the model through what is high, and only hands on or promotes.

    The conversion then stands before such a node instead of behind it: there are no more conversions, fewer where
    several such nodes read one value, and its result is not rounded.
    """
    typed = {id(variable.node) for variable in problem.variables}
    ends = {id(value) for value in problem.model.graph.outputs}
    tail: set[int] = set()

    def leads_out(value: ir.Value) -> bool:
        if value.is_graph_output() and id(value) not in ends:
            return False  # out of a body, and on from there
        return all(id(node) in tail or id(node) not in typed for node, _ in value.uses())

    for variable in reversed(problem.variables):
        results = variable.node.outputs
        if not all(map(leads_out, results)):
            continue
        free = variable.policy in ("pass", "promote") and variable.present == variable.high in variable.allowed
        free = free and (problem.keeps_io_types or not any(id(value) in ends for value in results))
        if variable.chosen != variable.high and free and len(activations(problem, variable)) <= 1:
            variable.chosen, variable.because = variable.high, ()
            variable.policy = "tail"
        if variable.chosen == variable.high:
            tail.add(id(variable.node))
