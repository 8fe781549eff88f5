"""Nodes between the last low node and the model outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_precision.constraints import activations

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import TypingProblem

__all__ = ["raise_output_tails"]


def raise_output_tails(problem: TypingProblem) -> None:
    """Keep pass-through nodes that feed only model outputs in float32.

    The cast then stands before such a node instead of behind it. That adds no cast, saves some where several of these
    nodes read one value, and avoids rounding the result.
    """
    typed = {id(variable.node) for variable in problem.variables}
    ends = {id(value) for value in problem.model.graph.outputs}
    tail: set[int] = set()

    def leads_out(value: ir.Value) -> bool:
        if value.is_graph_output() and id(value) not in ends:
            return False  # an output of a body is read by the control-flow node
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
