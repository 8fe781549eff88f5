"""How nodes were executed, told from what an engine reports about those that survived its fusions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dovetail.plugin import Executed

if TYPE_CHECKING:
    import onnx_ir as ir


NOT_REPORTED = Executed("", "not-reported")


def node_key(node: ir.Node) -> str:
    """The name of a node in reports; its first output's name where it has none."""
    return node.name or (node.outputs[0].name if node.outputs else "") or node.op_type


def follow_fusions(nodes: Iterable[ir.Node], reported: Mapping[str, str]) -> dict[str, Executed]:
    """What happened to every node, given the precision of those that an engine reports.

    Engines give a fusion the name of its last operator. So a node that is not reported was fused into the first
    reported node on the way along sole consumers; where that way forks or ends, nothing is known.
    """
    answers: dict[str, Executed] = {}
    for node in reversed(list(nodes)):
        key = node_key(node)
        if key in reported:
            answers[key] = Executed(reported[key], "reported")
            continue
        consumers = {node_key(user): user for output in node.outputs for user in output.consumers()}
        next_ = answers.get(next(iter(consumers))) if len(consumers) == 1 else None
        if next_ is None or next_ == NOT_REPORTED or any(output.is_graph_output() for output in node.outputs):
            answers[key] = NOT_REPORTED
        else:
            into = next_.how if next_.how.startswith("fused-into:") else f"fused-into:{next(iter(consumers))}"
            answers[key] = Executed(next_.precision, into)
    return answers
