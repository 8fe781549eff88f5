"""All graphs and nodes of a model in one list each: an analysis that passes share until the structure changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir.bodies import all_nodes, bodies

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


class FlatGraph:
    """All graphs and nodes of one revision of a model, bodies included: `ctx.analysis(FlatGraph, model)`.

    Attributes:
        nodes: Every node of the main graph and of all bodies; a node comes before the nodes of its own bodies.
        graphs: Every graph, outermost first.
        holders: The node that holds each body, by the body's `id`.
    """

    def __init__(self, model: Model):
        self.nodes: list[ir.Node] = list(all_nodes(model.graph))
        self._bodies = {id(node): held for node in self.nodes if (held := bodies(node))}
        self.graphs: list[ir.Graph] = [graph for _, graph in model.graphs()] if self._bodies else [model.graph]
        self.holders: dict[int, ir.Node] = {
            id(body): node for node in self.nodes for body in self._bodies.get(id(node), ())
        }

    @classmethod
    def compute(cls, model: Model, _: object) -> FlatGraph:
        """Walk the current revision of `model`."""
        return cls(model)

    def outermost(self, node: ir.Node) -> ir.Node:
        """Return the node of the main graph that contains `node` in its bodies; `node` itself if it is in none."""
        while (holder := self.holders.get(id(node.graph))) is not None:
            node = holder
        return node

    def body_nodes(self, node: ir.Node) -> Iterator[ir.Node]:
        """All nodes in the bodies of `node`, nested bodies included; empty unless `node` is control flow."""
        for body in self._bodies.get(id(node), ()):
            yield from all_nodes(body)
