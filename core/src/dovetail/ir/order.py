"""Nodes in an order in which values are defined before they are read: ONNX demands it, not every tool delivers it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import onnx

__all__ = ["in_order", "order_of", "reads_of", "sort_function", "sort_nodes"]


def sort_nodes(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> int:
    """Sort the nodes of `graph` and of all bodies where they are not in order; others keep their places.

    Args:
        graph: Changed in place.
        outer: Names of the values that a body sees from outside.

    Returns:
        How many graphs were not in order.

    Raises:
        DovetailError: A node reads what nothing defines, or nodes read each other in a circle.
    """
    given = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    given |= {tensor.values.name for tensor in graph.sparse_initializer}
    sorted_graphs = _sort(graph, given | outer)
    inner: frozenset[str] | None = None
    for node in graph.node:
        for body in _bodies(node):
            if inner is None:
                inner = outer | given | {name for other in graph.node for name in other.output}
            sorted_graphs += sort_nodes(body, inner)
    return sorted_graphs


def sort_function(function: onnx.FunctionProto) -> int:
    """Sort the nodes of a local function and of all bodies in it, as `sort_nodes` does for a graph."""
    given = frozenset(function.input)
    sorted_graphs = _sort(function, given)
    inner = given | {name for node in function.node for name in node.output}
    return sorted_graphs + sum(sort_nodes(body, inner) for node in function.node for body in _bodies(node))


def _sort(holder: onnx.GraphProto | onnx.FunctionProto, known: Collection[str]) -> int:
    """Sort the nodes of `holder` itself; 1 if they were not in order."""
    reads = [reads_of(node) for node in holder.node]
    if in_order(holder.node, reads, known):
        return 0
    nodes = [holder.node[index] for index in order_of(holder.node, reads, known)]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del holder.node[:]
    holder.node.extend(copies)
    return 1


def in_order(nodes: Sequence[onnx.NodeProto], reads: list[list[str]], known: Collection[str]) -> bool:
    """Whether every node reads only what is `known` at first or defined before it."""
    known = set(known)
    for node, names in zip(nodes, reads):
        if not known.issuperset(names):
            return False
        known.update(node.output)
    return True


def order_of(nodes: Sequence[onnx.NodeProto], reads: list[list[str]], known: Collection[str]) -> list[int]:
    """Positions of `nodes` in an order that defines before it reads: always the first that could come next.

    Raises:
        DovetailError: A node reads what nothing defines, or nodes read each other in a circle.
    """
    known = set(known)
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waits: list[set[int]] = []
    readers: dict[int, list[int]] = {}
    for index, names in enumerate(reads):
        unknown = next((name for name in names if name not in producer and name not in known), None)
        if unknown is not None:
            raise DovetailError(f"node {_label(nodes[index])} reads '{unknown}', which nothing defines")
        waits.append({producer[name] for name in names if name in producer})
        for other in waits[-1]:
            readers.setdefault(other, []).append(index)
    ready = [index for index, others in enumerate(waits) if not others]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            waits[reader].discard(index)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(waits):
        index = _in_circle(waits)
        name = next(name for name in reads[index] if producer.get(name) in waits[index])
        raise DovetailError(f"node {_label(nodes[index])} reads '{name}', which is computed from its own result")
    return order


def _in_circle(waits: list[set[int]]) -> int:
    """A node that waits for itself; those that are left wait for others that are left."""
    index, seen = next(index for index, others in enumerate(waits) if others), set()
    while index not in seen:
        seen.add(index)
        index = min(waits[index])
    return index


def reads_of(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads, those that its bodies take from outside among them."""
    names = [name for name in node.input if name]
    for body in _bodies(node):
        names.extend(_free(body))
    return names


def _free(graph: onnx.GraphProto) -> set[str]:
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    defined |= {tensor.values.name for tensor in graph.sparse_initializer}
    defined.update(name for node in graph.node for name in node.output)
    read = {name for node in graph.node for name in reads_of(node)} | {value.name for value in graph.output}
    return read - defined


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _label(node: onnx.NodeProto) -> str:
    return f"'{node.name}' ({node.op_type})" if node.name else f"{node.op_type} of '{', '.join(node.output)}'"
