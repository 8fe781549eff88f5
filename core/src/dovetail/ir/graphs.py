"""Traversal of graphs and their bodies, the subgraphs in attributes of control-flow nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from dovetail.ir.model import Model


_GRAPH, _GRAPHS = 5, 10  # onnx.AttributeProto.AttributeType


def is_onnx(node: ir.Node | onnx.NodeProto) -> bool:
    """Check whether the operator of a node is ONNX's own, and not of another domain."""
    return node.domain in ("", "ai.onnx")


def named_bodies(node: ir.Node) -> list[tuple[str, ir.Graph]]:
    """Return the bodies of `node` with their attribute names: `body`, or `branches0`, `branches1` for a list."""
    found: list[tuple[str, ir.Graph]] = []
    # `data` is the dict that `attributes` wraps: this runs for every node of every walk, and the wrapper is slow.
    for attribute in node.attributes.data.values():
        kind = attribute.type
        if kind == _GRAPH and not attribute.is_ref():
            found.append((attribute.name, attribute.as_graph()))
        elif kind == _GRAPHS and not attribute.is_ref():
            found.extend((f"{attribute.name}{index}", body) for index, body in enumerate(attribute.as_graphs()))
    return found


def bodies(node: ir.Node) -> list[ir.Graph]:
    """Return the bodies of `node`; empty unless it is control flow."""
    return [body for _, body in named_bodies(node)]


def all_nodes(graph: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Yield every node of `graph` and of all its bodies; a node precedes the nodes of its bodies."""
    stack = [iter(graph)]
    while stack:
        for node in stack[-1]:
            yield node
            if node.attributes.data and (found := named_bodies(node)):
                stack.extend(iter(body) for _, body in reversed(found))
                break
        else:
            stack.pop()


def body_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Yield every node in the bodies of `node`, nested bodies included."""
    for body in bodies(node):
        yield from all_nodes(body)


def used_values(node: ir.Node) -> list[ir.Value]:
    """Return the values of a node's own graph that it or its bodies use, with repetitions."""
    used = [value for value in node.inputs if value is not None]
    if not node.attributes.data:  # the wrapped dict: this runs for every node, and the wrapper is slow
        return used
    for body in bodies(node):
        inner = (value for nested in all_nodes(body) for value in nested.inputs if value is not None)
        # Outputs of a body and of nested bodies may be values of the outer graph.
        outputs = (value for graph in (body, *body.subgraphs()) for value in graph.outputs)
        used += [value for value in (*inner, *outputs) if value.graph is node.graph]
    return used


Reads: TypeAlias = "Mapping[ir.Node, tuple[ir.Value, ...]]"
"""The values that each node of a graph uses, directly or in its bodies."""


def reads_of(graph: ir.Graph) -> Reads:
    """Return the values that each node of `graph` uses, without repetitions."""
    return {node: tuple(dict.fromkeys(used_values(node))) for node in graph}


class FlatGraph:
    """All graphs and nodes of one revision of a model, bodies included: `ctx.analysis(FlatGraph, model)`.

    Attributes:
        nodes: Every node of the main graph and of all bodies; a node precedes the nodes of its bodies.
        graphs: Every graph, outermost first.
        holders: The node that owns each body, by the body's `id`.
    """

    def __init__(self, model: Model):
        self.nodes: list[ir.Node] = list(all_nodes(model.graph))
        owners = [node for node in self.nodes if node.attributes.data and named_bodies(node)]
        self._bodies = {id(node): bodies(node) for node in owners}
        self.graphs: list[ir.Graph] = [graph for _, graph in model.graphs()] if owners else [model.graph]
        self.holders: dict[int, ir.Node] = {id(body): node for node in owners for body in bodies(node)}

    @classmethod
    def compute(cls, model: Model, _: object) -> FlatGraph:
        """Walk the current revision of `model`."""
        return cls(model)

    def outermost(self, node: ir.Node) -> ir.Node:
        """Return the main-graph node whose bodies contain `node`; `node` itself if it is in no body."""
        while (holder := self.holders.get(id(node.graph))) is not None:
            node = holder
        return node

    def body_nodes(self, node: ir.Node) -> Iterator[ir.Node]:
        """Yield every node in the bodies of `node`, nested bodies included; empty unless `node` is control flow."""
        for body in self._bodies.get(id(node), ()):
            yield from all_nodes(body)
