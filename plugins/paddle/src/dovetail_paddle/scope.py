"""Scopes of blocks under translation: values by number or name, which nested blocks see, and the nodes so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from dovetail_paddle.branches import merge_branches
from dovetail_paddle.pd_graph import BUILTIN, PD_OP, UNKNOWN, PdGraphs

if TYPE_CHECKING:
    import onnx_ir as ir


Key = TypeVar("Key")
"""The key of a value: the number of an SSA value, or the name of a variable."""


class BlockScope(Generic[Key]):
    """The values and nodes of one block.

    Args:
        graphs: Builder of nodes and values.
        outer: The scope of the enclosing block; None for the main block.
    """

    def __init__(self, graphs: PdGraphs, outer: BlockScope[Key] | None):
        self.graphs = graphs
        self._outer = outer
        self._values: dict[Key, ir.Value] = {}
        self._nodes: list[ir.Node] = []

    def set(self, key: Key, value: ir.Value) -> None:
        """Bind a number or name to a value, in this block and nested ones."""
        self._values[key] = value

    def find(self, key: Key) -> ir.Value | None:
        """Return the current value of a number or name, or None."""
        scope: BlockScope[Key] | None = self
        while scope is not None:
            if key in scope._values:
                return scope._values[key]
            scope = scope._outer
        return None

    def graph(self, name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Graph:
        """Create the graph of the translated nodes."""
        import onnx_ir as ir

        imports = {"": 18, PD_OP: 1, BUILTIN: 1, UNKNOWN: 1}
        outputs = self.graphs.own_results(outputs, self._nodes, inputs)
        graph = ir.Graph(inputs, outputs, nodes=(), opset_imports=imports, name=name)
        graph.extend(merge_branches(self._nodes))
        return graph
