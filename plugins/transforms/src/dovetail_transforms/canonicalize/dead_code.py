"""The `dead-code` pass: remove unused nodes and initializers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.bodies import body_nodes
from dovetail.passes import Pass

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class DeadCode(Pass):
    """Remove nodes and initializers that no graph output depends on.

    Given:  %b = Relu(%a), and nothing reads %b
    Result: the node is removed, and so are nodes and initializers that only it read. Graph inputs stay.
    """

    name = "dead-code"
    stage = "normalise"
    after = ("normalise", "fold-constants", "remove-identity", "fold-batchnorm", "fold-affine")

    def run(self, model: Model, ctx: Context) -> bool:
        """Remove nodes in one backward walk; bodies first, as they capture outer values."""
        changed = False
        graphs = [graph for _, graph in model.graphs()]
        for graph in reversed(graphs):
            for node in reversed(graph):
                if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                    _detach_bodies(node)
                    graph.remove(node, safe=True)
                    ctx.count("nodes")
                    changed = True
        for graph in reversed(graphs):
            inputs = {id(value) for value in graph.inputs}
            outputs = {id(value) for value in graph.outputs}
            for name, value in list(graph.initializers.items()):
                if not value.uses() and id(value) not in inputs and id(value) not in outputs:
                    del graph.initializers[name]
                    ctx.count("initializers")
                    changed = True
        return changed


def _detach_bodies(node) -> None:
    """Detach the bodies of a removed node from the values they capture."""
    for inner in list(body_nodes(node)):
        for index in range(len(inner.inputs)):
            inner.replace_input_with(index, None)
