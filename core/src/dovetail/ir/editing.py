"""Edits that keep every other edge as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["insert_after_value", "insert_on_edge", "replace_uses_except"]


def replace_uses_except(old: ir.Value, new: ir.Value, keep: Collection[ir.Node] = ()) -> int:
    """Let every reader of `old` read `new` instead, apart from the nodes in `keep`.

    A node that computes `new` from `old` belongs into `keep`, or it would read itself. Graph outputs are not touched.

    Returns:
        How many inputs changed.
    """
    uses = [(node, index) for node, index in old.uses() if node not in keep]
    for node, index in uses:
        node.replace_input_with(index, new)
    return len(uses)


def insert_on_edge(node: ir.Node, index: int, make: Callable[[ir.Value], ir.Node]) -> ir.Node:
    """Put a node on the edge into input `index` of `node`; other readers of that value keep it.

    Args:
        node: The reader.
        index: Which of its inputs.
        make: Makes the new node, with one output, from the value that is read now.

    Raises:
        ValueError: The input is absent.
    """
    value = node.inputs[index]
    if value is None:
        raise ValueError(f"input {index} of {node.name or node.op_type} is absent")
    inserted = make(value)
    node.graph.insert_before(node, inserted)
    node.replace_input_with(index, inserted.outputs[0])
    return inserted


def insert_after_value(graph: ir.Graph, value: ir.Value, node: ir.Node) -> None:
    """Put `node` into `graph` at the first place where `value` is there to read.

    Right after the producer when it stands in `graph`; otherwise (an input, an initializer, a value captured from
    outside) at the top.
    """
    producer = value.producer()
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, node)
    elif len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)
