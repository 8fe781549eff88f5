"""The parts of a model at one revision, as an analysis: passes that change no structure share one walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir.bodies import all_nodes, bodies

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model

__all__ = ["FlatGraph"]


class FlatGraph:
    """All graphs and nodes of a model, as they are when it is asked for: `ctx.analysis(FlatGraph, model)`.

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
        """The parts of `model` as it is now."""
        return cls(model)

    def body_nodes(self, node: ir.Node) -> Iterator[ir.Node]:
        """Every node of the bodies of `node`, and of theirs; none for nearly all nodes."""
        for body in self._bodies.get(id(node), ()):
            yield from all_nodes(body)
