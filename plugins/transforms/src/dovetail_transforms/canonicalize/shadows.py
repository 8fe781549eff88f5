"""Rename values in bodies that shadow outer names: ONNX forbids shadowing, but exporters write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.fresh_names import FreshNames

from dovetail_transforms.canonicalize.names import all_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx


def rename_shadows(graph: onnx.GraphProto) -> int:
    """Rename values that a body defines under a name of an outer scope.

    Returns:
        The number of renamed values.
    """
    holders = [node for node in graph.node if any(True for _ in _bodies(node))]
    if not holders:
        return 0
    taken = _defined(graph) | {name for node in all_nodes(graph) for name in (*node.input, *node.output)}
    names = FreshNames(taken)
    visible = _defined(graph)
    return sum(_rename(body, visible, names) for node in holders for body in _bodies(node))


def _rename(graph: onnx.GraphProto, visible: set[str], fresh: FreshNames) -> int:
    """Rename values that shadow one of `visible`, a set that grows and shrinks during the walk."""
    names = {name: fresh.fresh(name) for name in sorted(_defined(graph) & visible)}
    if names:
        _apply(graph, names)
    bodies = [body for node in graph.node for body in _bodies(node)]
    if not bodies:
        return len(names)
    added = _defined(graph) - visible
    visible |= added
    inner = sum(_rename(body, visible, fresh) for body in bodies)
    visible -= added
    return len(names) + inner


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
        for body in _bodies(node):
            hidden = _defined(body)
            _apply(body, {before: after for before, after in names.items() if before not in hidden})


def _defined(graph: onnx.GraphProto) -> set[str]:
    names = {entry.name for entry in (*graph.input, *graph.initializer)}
    names |= {tensor.values.name for tensor in graph.sparse_initializer}
    return (names | {name for node in graph.node for name in node.output}) - {""}


def _bodies(node: onnx.NodeProto):
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
