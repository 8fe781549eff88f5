"""Node names, preserved and made unique, and renaming of values in bodies whose names are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames
from dovetail_onnx.skeleton import graphs_of
from dovetail_onnx.topological_order import bodies_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    for inner in graphs_of(graph):
        yield from inner.node


def rename_shadows(graph: onnx.GraphProto) -> int:
    """Rename values that a body defines under a name of an outer scope, or of a body before it.

    onnx's inference takes numbers that it propagates in one body for those of the same name in the next one.

    Returns:
        The number of renamed values.
    """
    holders = [node for node in graph.node if any(True for _ in bodies_of(node))]
    if not holders:
        return 0
    taken = defined_names(graph) | {name for node in all_nodes(graph) for name in (*node.input, *node.output)}
    names = FreshNames(taken)
    seen = defined_names(graph)
    return sum(_rename(body, seen, names) for node in holders for body in bodies_of(node))


def _rename(graph: onnx.GraphProto, seen: set[str], fresh: FreshNames) -> int:
    """Rename values whose name is in `seen`, a set that grows during the walk."""
    names = {name: fresh.fresh(name) for name in sorted(defined_names(graph) & seen)}
    if names:
        _apply(graph, names)
    seen |= defined_names(graph)
    return len(names) + sum(_rename(body, seen, fresh) for node in graph.node for body in bodies_of(node))


def _apply(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Apply the new names to definitions and uses in `graph`."""
    for entry in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        entry.name = names.get(entry.name, entry.name)
    for tensor in graph.sparse_initializer:
        tensor.values.name = names.get(tensor.values.name, tensor.values.name)
    for node in graph.node:
        for ports in (node.input, node.output):
            for index, name in enumerate(ports):
                if name in names:
                    ports[index] = names[name]
        for body in bodies_of(node):
            hidden = defined_names(body)
            _apply(body, {before: after for before, after in names.items() if before not in hidden})


def defined_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names of all values that a graph defines itself, without those of its bodies."""
    names = {entry.name for entry in (*graph.input, *graph.initializer)}
    names |= {tensor.values.name for tensor in graph.sparse_initializer}
    return (names | {name for node in graph.node for name in node.output}) - {""}
