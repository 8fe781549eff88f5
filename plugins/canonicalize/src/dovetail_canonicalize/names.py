"""Node names: kept across onnx's converter, which drops them, and given where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir.fresh_names import FreshNames

if TYPE_CHECKING:
    import onnx

__all__ = ["NodeNames", "all_nodes"]


class NodeNames:
    """The names of all nodes of a graph, by what each node computes first."""

    def __init__(self, graph: onnx.GraphProto):
        self._names: dict[str, tuple[str, list]] = {}
        for node in all_nodes(graph):
            if node.output and (node.name or node.metadata_props):
                self._names[node.output[0]] = (node.name, list(node.metadata_props))

    def give_back(self, graph: onnx.GraphProto, unnamed: bool = False) -> dict[str, tuple[str, ...]]:
        """Name every node, uniquely: as before where it had a name, `<operator>_<value>` where not.

        Args:
            graph: The graph, changed in place.
            unnamed: Nodes that had no name get none.

        Returns:
            For every node whose name is not its own, that name and the source name (none for a node without one).
        """
        names = FreshNames()
        changed: dict[str, tuple[str, ...]] = {}
        for node in all_nodes(graph):
            before, properties = self._names.get(node.output[0] if node.output else "", ("", []))
            if properties and not node.metadata_props:
                node.metadata_props.extend(properties)
            if unnamed:
                node.name = before
                continue
            name = names.fresh(before or node.name or "_".join([node.op_type, *node.output[:1]]))
            node.name = name
            if name != before:
                changed[name] = (before,) if before else ()
        return changed


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node of a graph and of all bodies in it."""
    stack = [graph]
    while stack:
        graph = stack.pop()
        for node in graph.node:
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                stack.extend(attribute.graphs)
