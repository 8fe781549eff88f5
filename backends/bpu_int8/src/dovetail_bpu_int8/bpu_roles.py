"""The strategy `bpu-roles`: roles, plus per-node requests in the terms of the vendor's toolchain."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.plugin import Remedy
from dovetail_placement import Roles

from dovetail_bpu_int8.bpu_requests import MODEL_OUTPUTS, BpuRequests, remark_if_unused
from dovetail_bpu_int8.facts import output_layout
from dovetail_bpu_int8.tails import TailOperators, Tails, is_table, scales_by_number
from dovetail_bpu_int8.unit_conv import why_no_unit_conv
from dovetail_bpu_int8.unit_conv_option import UnitConvs
from dovetail_bpu_int8.widths import settle_pinned, settle_widths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir
    from dovetail.planning import Claims
    from dovetail.plugin import Backend, View
    from dovetail_placement import EditPlace


_NAMED = 4


@dataclass(frozen=True)
class BpuRoles(Roles):
    """Claims nodes by role, leaves nodes to the CPU on request, and decides the width of every value.

    Attributes:
        tables: Operators implemented by lookup tables, which may end a region. Model outputs from tables are in int16
            if their operands can be in int16, too.
        arithmetic: Operators besides tables whose results passive operators may move to the end of a region.
        trailing: Passive operators that may end a region, unless they move the sum of a product.
        leading: Passive operators that may begin a region, between a producer elsewhere and a consumer on the BPU.
        scaling: Operators that may end a region if they scale an image by a scalar, implemented as a unit convolution.
        asked_at_end: Operators for which the vendor's tool accepts `run_on_bpu` at the end of a model. If
            `asked_anywhere` is empty, too, it accepts every operator.
        asked_anywhere: Operators for which it accepts `run_on_bpu` anywhere.
    """

    tables: tuple[str, ...] = ()
    arithmetic: tuple[str, ...] = ()
    trailing: tuple[str, ...] = ()
    leading: tuple[str, ...] = ()
    scaling: tuple[str, ...] = ()
    asked_at_end: tuple[str, ...] = ()
    asked_anywhere: tuple[str, ...] = ()

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim the supported nodes of `view`, with one width per port."""
        for node, why in view.analysis(UnitConvs).notes():
            view.remark("passed", node, "unit-conv", why)
        claims = super().claim(view, backend)
        remark_if_unused(view, claims.claims, self.ends)
        tails = view.analysis(Tails)
        outputs = {node for claim in claims.claims if tails.gives_output(node := claim.node, self._parts)}
        return replace(claims, claims=settle_widths(view, claims.claims, outputs))

    def fix_up(self, view: View, claims: Claims) -> Claims:
        """Withdraw claims that lost their neighbors, and decide the widths that pins leave open."""
        kept = super().fix_up(view, claims)
        return replace(kept, claims=settle_pinned(view, kept.claims))

    def keeps_away(self, view: View, node: ir.Node) -> bool:
        """Check whether the user wants a node on the CPU."""
        asked = view.analysis(BpuRequests).away.get(node)
        if asked is not None:
            view.remark("missed", node, "users-choice", f"{asked.asked_by} says so", backend=view.backend.name)
        return asked is not None

    def asked_for(self, view: View, node: ir.Node) -> bool:
        """Check whether the user wants a manual operator on the BPU wherever its list accepts it."""
        return node in view.analysis(BpuRequests).on_bpu

    def may_end(self, view: View, node: ir.Node) -> bool:
        """Check whether an active node may end its region.

        Besides the operators of the base class, this holds for tables, output layouts, indices (which have no scale),
        nodes with a requested integer result, and scalings of images.
        """
        requests = view.analysis(BpuRequests)
        if self.tables and is_table(node, self.tables) or _gives_indices(node):
            return True
        if super().may_end(view, node) or node in requests.on_bpu or output_layout(node):
            return True
        if node.op_type in self.scaling and scales_by_number(node):
            return True
        ends = any(request.ports == MODEL_OUTPUTS for request in requests.formats.get(node, ()))
        return ends and any(value.is_graph_output() for value in node.outputs)

    def may_trail(self, view: View, node: ir.Node) -> bool:
        """Check whether a passive node may end its region: it must move results of tables and arithmetic."""
        return view.analysis(Tails).trails(node, self._parts)

    def may_lead(self, view: View, node: ir.Node) -> bool:
        """Check whether a passive node may begin its region."""
        return node.op_type in self.leading

    def end_rule(self, view: View, node: ir.Node, role: str) -> str:
        """Return a clause about the nodes that may end a region on this march."""
        if role == "passive":
            return self._trailing_rule(view, node)
        parts = [f"products ({', '.join(self.ends)})"]
        if self.sums:
            parts.append(f"sums of two computed images ({', '.join(self.sums)})")
        if self.scaling:
            parts.append(f"an image times a number ({', '.join(self.scaling)})")
        if self.tables:
            parts.append(f"tables ({_some(self.tables)})")
        return f"only {', '.join(parts)} and what gives indices may end a region"

    def _trailing_rule(self, view: View, node: ir.Node) -> str:
        if not self.trailing:
            return ""
        if node.op_type not in self.trailing:
            return f"of passive operators only {', '.join(self.trailing)} may end a region"
        moved = view.analysis(Tails).obstacle(node, self._parts)
        other = f"'{moved.name}' ({moved.op_type}) computes what it moves" if moved is not None else "it moves an input"
        return f"{other}: at the end of a region, only results of tables and arithmetic are moved"

    @property
    def _parts(self) -> TailOperators:
        return TailOperators(self.tables, self.arithmetic, self.trailing)

    def wants_edits(self, view: View) -> bool:
        """Whether unit convolutions are requested wherever they pay off."""
        return view.analysis(UnitConvs).wanted

    def edits_made(self, view: View, places: Sequence[EditPlace]) -> None:
        """Store the benefit of each unit convolution, for a remark on the edited graph."""
        view.analysis(UnitConvs).keep(places, view.backend.name)

    def remedies(self, view: View, node: ir.Node) -> Iterator[Remedy]:
        """Yield pins and edits; mark pins that the vendor's tool would reject, so that they are not offered."""
        own = f"{node.name}={view.backend.name}"
        refused = {own: why} if (why := self._unaskable(node)) else {}
        for remedy in super().remedies(view, node):
            for pin in remedy.pins:
                if pin not in refused and (other := _named(view, pin)) is not None and (why := self._unaskable(other)):
                    refused[pin] = why
            yield remedy._replace(why_not=next((refused[pin] for pin in remedy.pins if pin in refused), ""))
        if own in refused and view.verdict(node).ok is not False:
            yield Remedy(f"--pin {shlex.quote(own)}", pins=(own,), why_not=refused[own])

    def _unaskable(self, node: ir.Node) -> str:
        """Return why the vendor's tool rejects `run_on_bpu` for a node; empty if it accepts it."""
        if not (self.asked_at_end or self.asked_anywhere) or node.op_type in self.asked_anywhere:
            return ""
        if node.op_type in self.asked_at_end and any(value.is_graph_output() for value in node.outputs):
            return ""
        allowed = f"{', '.join(self.asked_at_end)} at the end of a model, and {', '.join(self.asked_anywhere)}"
        return f"run_on_bpu of the vendor's tool takes only {allowed} on this march"

    def edit_fits(self, node: ir.Node, side: str) -> bool:
        """Check whether a unit convolution can be inserted on a side of a node."""
        return not why_no_unit_conv(node, side)


def _named(view: View, pin: str) -> ir.Node | None:
    """Return the node that a pin of this backend names, or None."""
    name = pin.removesuffix(f"={view.backend.name}").removeprefix("name:")
    return next((node for node in view.model.graph if node.name == name), None)


def _some(operators: Sequence[str]) -> str:
    """Format the first operators of a list, and the count of the rest."""
    more = len(operators) - _NAMED
    return ", ".join(operators) if more <= 1 else f"{', '.join(operators[:_NAMED])} and {more} more"


def _gives_indices(node: ir.Node) -> bool:
    """Check whether all results are integers, such as those of ArgMax."""
    return all(value.dtype is not None and value.dtype.is_integer() for value in node.outputs)
