"""The `roles` strategy: active operators always, passive ones between them, manual ones on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.planning import Claims, Edit, claim_of, remedy
from dovetail.plugin import Strategy

from dovetail_placement.reasons import refused_part, remark_refusal
from dovetail_placement.strategies.integers import CONTROL_FLOW, SHAPE_ARITHMETIC, IntegerCandidates
from dovetail_placement.strategies.role_changes import (
    EditPlace,
    Loss,
    Sides,
    loss_without_user,
    missing_before,
    moved,
    places_that_pay,
    remedies_of_lost,
    remedies_of_manual,
    sides_of,
)

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.planning import Claim
    from dovetail.plugin import Backend, Remedy, View

    from dovetail_placement.search import SearchGraph


@dataclass(frozen=True)
class Roles(Strategy):
    """Claims nodes by the role of their operator in the backend's file.

    Active operators are claimed wherever the file accepts them. Passive ones move the integers of other nodes: they are
    claimed if all data that they move comes from nodes on the backend, and a node on the backend uses their result.
    Manual ones are claimed only if pinned.

    Source: the quantization logic of Horizon's toolchain, as its vendor describes it; other integer accelerators that
    keep wider accumulators at the end of a region have the same rule for their tails.

    Attributes:
        ends: Operators that may end a region, because their result leaves it in full precision. Other active operators
            also need a user on the backend. Empty: a region may end with any active operator.
        sums: Operators that may also end a region, if nodes on the backend compute all of their operands, which are
            four-dimensional: accelerators fuse such an addition into a convolution's accumulator.
        edit: The edit that `dovetail explain` suggests next to a node without a neighbor, such as an identity
            convolution; empty for none.
    """

    ends: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    edit: str = ""

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim the nodes of `view` that can stay if the backend loses none of them."""
        candidates = IntegerCandidates(view)
        wanted: dict[ir.Node, Claim] = {}
        for node in view.nodes():
            asked = self.asked_for(view, node)
            if not _remarked(candidates, node, asked) and not self.keeps_away(view, node):
                wanted[node] = claim_of(node, view.verdict(node))
        here = wanted | {node: claim for node, claim in _pinned(candidates) if node not in wanted}
        lost = self._losses(candidates, here)
        for node, loss in lost.items():
            _remark(view, node, loss)
        return Claims(
            [claim for node, claim in wanted.items() if node not in lost], self._asked_edits(candidates, here, lost)
        )

    def wants_edits(self, view: View) -> bool:
        """Return whether the edit is requested wherever it is profitable; a hook for subclasses."""
        return False

    def edits_made(self, view: View, places: Sequence[EditPlace]) -> None:
        """Called with the places of requested edits; a hook for subclasses that remark them."""

    def _asked_edits(
        self, candidates: IntegerCandidates, here: dict[ir.Node, Claim], lost: Mapping[ir.Node, Loss]
    ) -> list[Edit]:
        """Return the profitable edits, if they are requested."""
        if not self.edit or not self.wants_edits(candidates.view):
            return []

        def losses(sides: Sides) -> dict[ir.Node, tuple[str, ir.Node | None]]:
            return sides_of(self._losses(candidates, here, sides))

        places = places_that_pay(candidates.graph, sides_of(lost), losses, self.edit_fits)
        self.edits_made(candidates.view, places)
        return [Edit(self.edit, place.node.name or "", place.side) for place in places]

    def keeps_away(self, view: View, node: ir.Node) -> bool:
        """Return whether a node is excluded for another reason, with a remark; a hook for subclasses."""
        return False

    def asked_for(self, view: View, node: ir.Node) -> bool:
        """Return whether a manual operator is requested other than by a pin; a hook for subclasses."""
        return False

    def may_end(self, view: View, node: ir.Node) -> bool:
        """Return whether an active node may be the last of its region; a hook for subclasses."""
        return not self.ends or node.op_type in self.ends

    def may_trail(self, view: View, node: ir.Node) -> bool:
        """Return whether a passive node may be the last of its region; a hook for subclasses."""
        return False

    def may_lead(self, view: View, node: ir.Node) -> bool:
        """Return whether a passive node may be the first of its region; a hook for subclasses.

        Its producer is then elsewhere. It needs a user on the backend in any case, whose scale it takes.
        """
        return False

    def end_rule(self, view: View, node: ir.Node, role: str) -> str:
        """Describe legal region ends in a clause, for remarks on nodes that are not; empty for none."""
        return f"only {', '.join(self.ends)} may end a region" if role != "passive" else ""

    def fix_up(self, view: View, claims: Claims) -> Claims:
        """Withdraw nodes that lost neighbors to other backends or to pins."""
        here = {claim.node: claim for claim in claims.claims}
        lost = self._losses(IntegerCandidates(view), here)
        for node, loss in lost.items():
            _remark(view, node, loss)
        return Claims([claim for claim in claims.claims if claim.node not in lost])

    def remedies(self, view: View, node: ir.Node) -> Iterable[Remedy]:
        """Yield pins and edits, cheapest first; see `role_changes`."""
        verdict, name = view.verdict(node), view.backend.name
        if verdict.ok is False or not verdict.role:
            return ()
        if verdict.role == "manual":
            return remedies_of_manual(node, name, self._edits(node))
        here = {other: got[1] for other in view.model.graph if (got := view.claimed(other)) and got[0] == name}
        loss = self._loss(IntegerCandidates(view), node, verdict.role, here)
        return remedies_of_lost(view, node, self._edits(node), loss and loss.because, loss.side if loss else "after")

    def edit_fits(self, node: ir.Node, side: str) -> bool:
        """Return whether the edit can be made on a side of a node; a hook for subclasses."""
        return True

    def _edits(self, node: ir.Node) -> dict[str, str]:
        """Return the edits next to a node, by side."""
        sides = [side for side in ("before", "after") if self.edit and self.edit_fits(node, side)]
        return {side: f"{self.edit}={node.name}:{side}" for side in sides}

    def _losses(
        self, candidates: IntegerCandidates, here: dict[ir.Node, Claim], edited: Sides = frozenset()
    ) -> dict[ir.Node, Loss]:
        """Return nodes that cannot stay, with reasons, in the order of loss; `edited` are sides with an edit.

        Each loss is visited once from each neighbor, so the time is linear in the edges.
        """
        graph, left, lost = candidates.graph, dict(here), {}
        readers = {node: sum(edge.target in here for edge in moved(graph.readers[node])) for node in here}
        queue = deque(reversed([node for node in graph.nodes if node in here]))
        while queue:
            node = queue.popleft()
            claim = left.get(node)
            if claim is None or claim.pinned:
                continue
            loss = self._loss(candidates, node, claim.role, left, readers[node], edited)
            if loss is None:
                continue
            lost[node] = loss
            del left[node]
            for edge in moved(graph.producers[node]):
                if edge.source in left:
                    readers[edge.source] -= 1
                    if not readers[edge.source]:
                        queue.append(edge.source)
            queue.extend(edge.target for edge in moved(graph.readers[node]) if edge.target in left)
        return lost

    def _loss(
        self,
        candidates: IntegerCandidates,
        node: ir.Node,
        role: str,
        here: dict[ir.Node, Claim],
        readers: int | None = None,
        edited: Sides = frozenset(),
    ) -> Loss | None:
        """Return why a node cannot stay among the nodes in `here`; None if it can.

        Args:
            candidates: The strategy's candidates.
            node: The node.
            role: Its role.
            here: The nodes on the backend.
            readers: The number of these that use it; counted if None.
            edited: Sides with an edit.
        """
        graph = candidates.graph
        alone = not (any(edge.target in here for edge in moved(graph.readers[node])) if readers is None else readers)
        alone &= (node, "after") not in edited
        view = candidates.view
        if role == "passive":
            before = missing_before(graph, node, here, (node, "before") in edited)
            if before is not None and (alone or before.because is None or not self.may_lead(view, node)):
                return before
            stays = not alone or self.may_trail(view, node)
            return None if stays else loss_without_user(graph, node, "passive", self.end_rule(view, node, role))
        if alone and not self.may_end(view, node) and not self._is_sum(graph, node, here):
            return loss_without_user(graph, node, "tail", self.end_rule(view, node, role))
        return None

    def _is_sum(self, graph: SearchGraph, node: ir.Node, here: dict[ir.Node, Claim]) -> bool:
        """Check whether a node adds four-dimensional values that nodes in `here` compute."""
        shape = node.outputs[0].shape
        if node.op_type not in self.sums or shape is None or len(shape) != 4:
            return False
        computed = {edge.input for edge in graph.producers[node] if edge.kind == "data" and edge.source in here}
        return len(computed) == len(node.inputs)


def _remark(view: View, node: ir.Node, loss: Loss) -> None:
    what = "it is passive, and " if loss.rule == "passive" else ""
    because = (loss.because,) if loss.because is not None else ()
    view.remark("missed", node, loss.rule, what + loss.why, because=because, backend=view.backend.name)


def _pinned(candidates: IntegerCandidates) -> Iterator[tuple[ir.Node, Claim]]:
    view = candidates.view
    for node in candidates.graph.nodes:
        found = view.claimed(node)
        if found is not None and found[0] == view.backend.name:
            yield node, found[1]


def _remarked(candidates: IntegerCandidates, node: ir.Node, asked: bool) -> bool:
    """Remark why a node is excluded regardless of its neighbors; return False if it is not.

    Args:
        candidates: The strategy's candidates.
        node: The node.
        asked: Whether it is requested, which manual operators need.
    """
    view, name = candidates.view, candidates.view.backend.name
    suggest: str | Remedy = ""
    if node in candidates.shape_arithmetic:
        rule, why = SHAPE_ARITHMETIC
    elif (refused := refused_part(view, node)) is not None:
        remark_refusal(view, node, refused)
        return True
    elif len(view.whole(node)) > 1:
        rule, why = CONTROL_FLOW
    elif view.verdict(node).role == "manual" and not asked:
        rule, why = "manual", f"{node.op_type} is quantized only where somebody asks for it"
        suggest = remedy((f"{node.name}={name}",))
    elif not view.verdict(node).role:
        rule, why = "no-role", f"its file gives {node.op_type} no role"
    else:
        return False
    view.remark("missed", node, rule, why, suggest=suggest, backend=name)
    return True
