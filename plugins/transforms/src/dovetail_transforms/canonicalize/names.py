"""Node names: preserved across onnx's converter, which drops them, and made unique."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir.fresh_names import FreshNames

if TYPE_CHECKING:
    import onnx


class NodeNames:
    """The names of all nodes of a graph, by the first output of each node."""

    def __init__(self, graph: onnx.GraphProto):
        self._names: dict[str, tuple[str, list]] = {}
        for node in all_nodes(graph):
            if node.output and (node.name or node.metadata_props):
                self._names[node.output[0]] = (node.name, list(node.metadata_props))

    def restore(self, graph: onnx.GraphProto, unnamed: bool = False) -> dict[str, tuple[str, ...]]:
        """Restore node names and make them unique; unnamed nodes get `<operator>_<value>`.

        Args:
            graph: The graph, changed in place.
            unnamed: Leave unnamed nodes unnamed.

        Returns:
            The new name of every renamed node, with its source name (empty if it had none).
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
    """Yield every node of a graph and of all bodies in it."""
    stack = [graph]
    while stack:
        graph = stack.pop()
        for node in graph.node:
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                stack.extend(attribute.graphs)
