"""Shape cones: integers that are computed from the extents of tensors alone, with the nodes that compute them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.planning.placement import kind_of

from dovetail_placement.edge_kinds import operator_facts

if TYPE_CHECKING:
    import onnx_ir as ir


_LARGEST = 256
"""Nodes of a cone. Larger ones are not followed, so that many readers of one cost linear time."""


@dataclass(frozen=True)
class ShapeCone:
    """The nodes that compute a value from extents.

    Attributes:
        nodes: The nodes, each behind those that it reads from.
        tensors: The tensors whose extents they take.
        obstacle: What is computed from something else than extents, in words; empty if nothing is.
    """

    nodes: tuple[ir.Node, ...]
    tensors: tuple[ir.Value, ...]
    obstacle: str = ""


def shape_cone(
    value: ir.Value, there: Collection[ir.Node], whole: Callable[[ir.Node], Collection[object]]
) -> ShapeCone:
    """The cone of a value.

    Args:
        value: The value.
        there: Nodes whose results need no cone.
        whole: A node with those of its bodies.
    """
    sources = operator_facts().groups["extents"]
    nodes: dict[ir.Node, None] = {}
    tensors: dict[ir.Value, None] = {}
    home = value.producer()
    stack: list[tuple[ir.Value, ir.Node | None]] = [(value, None)]
    open_nodes: set[ir.Node] = set()
    while stack:
        part, done = stack.pop()
        if done is not None:
            nodes[done] = None
            continue
        if part.is_initializer():
            continue
        node = part.producer()
        if node in there or node in open_nodes:
            continue
        if node is None:
            return ShapeCone((), (), f"'{part.name}' is an input of the model")
        if kind_of(node) != "shape" or len(whole(node)) > 1 or home is None or node.graph is not home.graph:
            return ShapeCone((), (), f"'{node.name}' ({node.op_type}) computes more than extents")
        if len(open_nodes) == _LARGEST:
            return ShapeCone((), (), f"more than {_LARGEST} nodes compute it")
        open_nodes.add(node)
        stack.append((part, node))
        inputs = [given for given in node.inputs if given is not None]
        if node.op_type in sources and node.domain in ("", "ai.onnx"):
            tensors.update(dict.fromkeys(inputs))
        else:
            stack += [(given, None) for given in reversed(inputs)]
    return ShapeCone(tuple(nodes), tuple(tensors))
