"""Shape arithmetic in an engine that only nodes outside of it read: it moves to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from dovetail.planning.placement import kind_of

from dovetail_placement.engine_regions.shape_cones import shape_cone

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_placement.engine_regions.worth import Users


def read_outside_alone(
    nodes: Sequence[ir.Node],
    legal: Collection[ir.Node],
    users: Users,
    whole: Callable[[ir.Node], Collection[ir.Node]],
) -> set[ir.Node]:
    """The legal nodes that compute integers from extents for nodes outside alone.

    The tensors whose extents they take are there, or have to be in any case; otherwise less crosses the border if the
    integers do.

    Args:
        nodes: The nodes of the graph, in topological order.
        legal: Those that may be in regions.
        users: The nodes that use each value.
        whole: A node with those of its bodies.
    """
    found: set[ir.Node] = set()

    def outside(node: ir.Node) -> bool:
        return node not in legal or node in found

    def is_there(tensor: ir.Value) -> bool:
        producer = tensor.producer()
        if producer is None or outside(producer) or tensor.is_graph_output():
            return True
        return any(outside(user) and kind_of(user) != "shape" for user in users.get(tensor, ()))

    for node in reversed(nodes):
        if node not in legal or kind_of(node) != "shape" or any(value.is_graph_output() for value in node.outputs):
            continue
        readers = [user for value in node.outputs for user in users.get(value, ())]
        if readers and all(map(outside, readers)):
            cones = [shape_cone(value, (), whole) for value in node.outputs if value.name]
            if all(not cone.obstacle and all(map(is_there, cone.tensors)) for cone in cones):
                found.add(node)
    return found
