"""Bodies: the graphs in the attributes of control-flow nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


_GRAPH, _GRAPHS = 5, 10  # onnx.AttributeProto.AttributeType


def named_bodies(node: ir.Node) -> list[tuple[str, ir.Graph]]:
    """Return the bodies of `node` with the attribute names: `body`, or `branches0`, `branches1` for a list."""
    found: list[tuple[str, ir.Graph]] = []
    # `data` is the dictionary behind `attributes`: this runs for every node of every walk, and the wrapper is slow.
    attributes = node.attributes.data
    if not attributes:
        return found
    for attribute in attributes.values():
        kind = attribute.type
        if kind == _GRAPH and not attribute.is_ref():
            found.append((attribute.name, attribute.as_graph()))
        elif kind == _GRAPHS and not attribute.is_ref():
            found.extend((f"{attribute.name}{index}", body) for index, body in enumerate(attribute.as_graphs()))
    return found


def bodies(node: ir.Node) -> list[ir.Graph]:
    """Return the bodies of `node`; empty unless it is control flow."""
    return [body for _, body in held] if (held := named_bodies(node)) else []


def all_nodes(graph: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Yield every node of `graph` and of all bodies in it; a node precedes the nodes of its bodies."""
    stack = [iter(graph)]
    while stack:
        for node in stack[-1]:
            yield node
            if node.attributes.data and (held := named_bodies(node)):
                stack.extend(iter(body) for _, body in reversed(held))
                break
        else:
            stack.pop()


def body_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Yield every node in the bodies of `node`, nested bodies included."""
    for body in bodies(node):
        yield from all_nodes(body)
