"""Reasons why a backend does not have a node: those of its file, and those that nothing else has given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.planning import HOST, facts_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import Context
    from dovetail.plugin import Backend, View

    from dovetail_placement.claiming import Claiming


def refused_part(view: View, node: ir.Node) -> ir.Node | None:
    """Return the first of `node` and the nodes in its bodies that the backend's file refuses; None if it takes all."""
    return next((part for part in view.whole(node) if view.verdict(part).ok is False), None)


def remark_refusal(view: View, node: ir.Node, refused: ir.Node) -> None:
    """Remark the limits that `refused`, which is `node` or a node in its bodies, violates."""
    why, because = why_refused(view, refused), tuple["ir.Node", ...]()
    if refused is not node:
        why, because = f"'{refused.name}' in its body cannot go there: {why}", (refused,)
    view.remark(
        "missed", node, "not-supported", why, because=because, source=source_of(view, refused),
        backend=view.backend.name, facts=facts_of(view.verdict(refused).reasons),
    )  # fmt: skip


def why_refused(view: View, node: ir.Node) -> str:
    """Return the limits that a node violates, which the backend's file refuses."""
    return "; ".join(reason.text for reason in view.verdict(node).reasons) or f"{node.op_type} is not in its file"


def source_of(view: View, node: ir.Node) -> str:
    """Return file and line of the first limit that a node violates; empty if there is none."""
    return next((reason.source for reason in view.verdict(node).reasons), "")


def remark_unexplained(claiming: Claiming, ctx: Context) -> None:
    """Remark why a node is not on a backend that is preferred to its own, where nothing has said so yet.

    Strategies explain the nodes that they are offered; the others are those in bodies of control flow, and all nodes if
    the backend is left out. A pinned node has the remark on its pin. Run once every node has a backend.
    """
    ranks = {backend.name: rank for rank, backend in enumerate(ctx.backends)}
    ranks[HOST] = len(ranks)
    _name_backends(claiming, ctx)
    said = {(one.node, one.backend) for one in ctx.remarks if one.kind in ("missed", "failed") and not one.format}
    for backend in ctx.backends:
        unexplained = _Unexplained(claiming, backend, ctx)
        for node in claiming.flat.nodes:
            owner, claim = claiming.claimed[id(node)]
            if ranks[owner] > ranks[backend.name] and not claim.pinned and (node.name, backend.name) not in said:
                unexplained.remark(node)


def _name_backends(claiming: Claiming, ctx: Context) -> None:
    """Name the backend in remarks of strategies that do not, on nodes that it did not get."""
    where = {node.name: claiming.claimed[id(node)][0] for node in claiming.flat.nodes}
    about = {key: backend.name for backend in reversed(ctx.backends) for key in claiming.view_of(backend).said}
    for at, one in enumerate(ctx.remarks if about else ()):
        name = about.get((one.node, one.rule, one.reason))
        if name is not None and one.kind == "missed" and not one.backend and where.get(one.node) not in (None, name):
            ctx.remarks[at] = replace(one, backend=name)


class _Unexplained:
    """Explains nodes that one backend does not have."""

    def __init__(self, claiming: Claiming, backend: Backend, ctx: Context):
        self._claiming, self._view, self._ctx = claiming, claiming.view_of(backend), ctx
        self._left_out = claiming.left_out(backend)
        self._refused: dict[ir.Node, ir.Node | None] = {}  # by control-flow node

    def remark(self, node: ir.Node) -> None:
        view, backend = self._view, self._view.backend
        if self._left_out:
            self._ctx.remark("missed", node, "left-out", self._left_out, source=backend.source, backend=backend.name)
            return
        outer = self._claiming.flat.outermost(node)
        if view.verdict(node).ok is False:
            remark_refusal(view, node, node)
        elif outer is not node:
            self._remark_in_body(node, outer)
        elif (refused := refused_part(view, node)) is not None:
            remark_refusal(view, node, refused)
        else:
            why = f"strategy '{self._ctx.strategy_of(backend)}' leaves it to the following backends"
            self._ctx.remark("missed", node, "not-claimed", why, backend=backend.name)

    def _remark_in_body(self, node: ir.Node, outer: ir.Node) -> None:
        """Remark a node that the file takes, and whose control-flow node is elsewhere with its bodies."""
        if outer not in self._refused:
            self._refused[outer] = refused_part(self._view, outer)
        refused, source = self._refused[outer], ""
        why, because = f"it is in a body of '{outer.name}' ({outer.op_type}), which", outer
        if refused is None:
            why += " is not there"
        else:
            source, limits = source_of(self._view, refused), why_refused(self._view, refused)
            runs = "" if refused is outer else f" runs as a whole, and '{refused.name}' ({refused.op_type})"
            why, because = f"{why}{runs} cannot go there: {limits}", refused
        backend = self._view.backend.name
        self._ctx.remark("missed", node, "in-body", why, because=(because,), source=source, backend=backend)
