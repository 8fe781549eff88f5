"""The view of a model that a strategy gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail.planning.placement import kind_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.verdict import Verdict
    from dovetail.plugin.protocols import Backend, Judge

__all__ = ["View"]


class View:
    """The unclaimed nodes of a model, with the verdicts of one backend.

    Attributes:
        model: The model; a strategy must not edit it.
        backend: The backend that claims.
    """

    def __init__(self, model: Model, ctx: Context, backend: Backend, judge: Judge, hidden: set[int]):
        self.model = model
        self.backend = backend
        self.remark = ctx.remark
        self._flat = ctx.analysis(FlatGraph, model)
        self._judge = judge
        self._hidden = hidden
        self._verdicts: dict[int, Verdict] = {}

    def nodes(self) -> Iterator[ir.Node]:
        """Yield the unclaimed nodes of the main graph in graph order; see `whole` for bodies."""
        return (node for node in self.model.graph if id(node) not in self._hidden)

    def whole(self, node: ir.Node) -> list[ir.Node]:
        """Return the node and all nodes of its bodies, which must be claimed together: one engine runs them."""
        return [node, *self._flat.body_nodes(node)]

    def verdict(self, node: ir.Node) -> Verdict:
        """Return the legality of `node` by the backend's file."""
        known = self._verdicts.get(id(node))
        if known is None:
            known = self._verdicts[id(node)] = self._judge(node)
        return known

    def kind(self, node: ir.Node) -> str:
        """Return what the node computes: `data`, `index` or `shape`."""
        return kind_of(node)
