"""Topological order of nodes: ONNX requires it, but not every exporter guarantees it."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import all_nodes, named_bodies

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


def sort_nodes(graph: onnx.GraphProto, visible: set[str] | None = None) -> int:
    """Sort the nodes of `graph` and of all bodies topologically; sorted graphs are not changed.

    Args:
        graph: Changed in place. Names that it reads and does not define come from outside.
        visible: Outer names that a body sees. One set for all bodies, which grows and shrinks during the walk.

    Returns:
        The number of graphs that were not in order.

    Raises:
        DovetailError: The nodes form a cycle.
    """
    given = [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
    return _sort(graph, given, set() if visible is None else visible)


def in_order(graph: ir.Graph) -> bool:
    """Check whether no node of `graph` or of its bodies reads a result of a later node."""
    stack: list[tuple[Iterator[ir.Node], ir.Node | None]] = [(iter(graph), None)]
    seen: set[int] = set()
    later = {id(node) for node in all_nodes(graph)}
    while stack:
        nodes, owner = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
            if owner is not None:
                seen.add(id(owner))
            continue
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and id(producer) in later and id(producer) not in seen:
                return False
        bodies = [body for _, body in named_bodies(node)]
        if not bodies:
            seen.add(id(node))
            continue
        stack.append((chain.from_iterable(bodies), node))
    return True


def sort_function(function: onnx.FunctionProto) -> int:
    """Sort the nodes of a local function and of all bodies in it, as `sort_nodes` does for a graph."""
    return _sort(function, function.input, set())


def _sort(holder: onnx.GraphProto | onnx.FunctionProto, given: Sequence[str], visible: set[str]) -> int:
    order = topological_order(holder.node, visible)
    if order is not None:
        _reorder(holder, order)
    changed = int(order is not None)
    holders = [node for node in holder.node if node.attribute and any(True for _ in bodies_of(node))]
    if holders:
        added = {*given, *(name for node in holder.node for name in node.output)} - visible
        visible |= added
        changed += sum(sort_nodes(body, visible) for node in holders for body in bodies_of(node))
        visible -= added
    return changed


def _reorder(holder: onnx.GraphProto | onnx.FunctionProto, order: Sequence[int]) -> None:
    copies = [type(holder.node[index]).FromString(holder.node[index].SerializeToString()) for index in order]
    del holder.node[:]
    holder.node.extend(copies)


def topological_order(nodes: Sequence[onnx.NodeProto], visible: Container[str] = ()) -> list[int] | None:
    """Return positions of `nodes` in topological order, stable: of the ready nodes, always the first.

    Args:
        nodes: The nodes of one graph.
        visible: Outer names. One that is redefined here refers to the outer value until its redefinition.

    Returns:
        The positions; None if the nodes are in order already.

    Raises:
        DovetailError: The nodes form a cycle.
    """
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    reads = [
        [name for name in _reads(node) if name in producer and (producer[name] < index or name not in visible)]
        for index, node in enumerate(nodes)
    ]
    if all(producer[name] < index for index, names in enumerate(reads) for name in names):
        return None
    waits: list[set[int]] = [{producer[name] for name in names} for names in reads]
    readers: dict[int, list[int]] = {}
    for index, others in enumerate(waits):
        for other in others:
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
        index = _node_on_cycle(waits)
        name = next(name for name in reads[index] if producer[name] in waits[index])
        raise DovetailError(f"node {label_of(nodes[index])} reads '{name}', which is computed from its own result")
    return order


def _node_on_cycle(waits: list[set[int]]) -> int:
    """Return a node on a cycle: every remaining node waits for another remaining one."""
    index, seen = next(index for index, others in enumerate(waits) if others), set()
    while index not in seen:
        seen.add(index)
        index = min(waits[index])
    return index


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, including those that its bodies capture."""
    names = [name for name in node.input if name]
    for body in bodies_of(node) if node.attribute else ():
        names.extend(_free(body))
    return names


def _free(graph: onnx.GraphProto) -> set[str]:
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    defined |= {tensor.values.name for tensor in graph.sparse_initializer}
    defined.update(name for node in graph.node for name in node.output)
    read = {name for node in graph.node for name in _reads(node)} | {value.name for value in graph.output}
    return read - defined


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of `node`."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def label_of(node: onnx.NodeProto) -> str:
    """Return a label for messages: name and operator, or the operator and its outputs."""
    if node.name:
        return f"'{node.name}' ({node.op_type})"
    return f"{node.op_type} of '{', '.join(node.output)}'" if node.output else f"{node.op_type or '?'} without a name"
