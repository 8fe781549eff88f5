"""The strategy `engine-regions`: all supported nodes, in regions that are worth an engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.ir import reads_of
from dovetail.planning import Claims, Remedy, remedy

from dovetail_placement.engine_regions.graph_problem import fused_groups_of, graph_problem
from dovetail_placement.engine_regions.lost_shapes import LostShape, LostShapes
from dovetail_placement.engine_regions.partitioner import cuts, why_outside
from dovetail_placement.engine_regions.profitability import Profitability, RegionPart, users_of
from dovetail_placement.engine_regions.shape_cones import read_outside_alone
from dovetail_placement.strategies.every_node import Autocast

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import View

    from dovetail_placement.view import BackendView


@dataclass
class EngineRegionsStrategy(Autocast):
    """Claims all nodes that the backend's file accepts, and withdraws unprofitable and unbuildable ones.

    Its regions are those of the partitioner of the same name. A node that reads a value of unknown rank from outside of
    its region is withdrawn, and so are parts of regions that save less than their border costs; see `profitability`.

    Attributes:
        launch: Cost of an engine launch, in bytes that could be moved in that time.
        border: Weight of a byte that crosses the border of a region.
    """

    launch: int = 1 << 20
    border: int = 1
    _withdrawn: dict[ir.Node, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Reject negative costs."""
        for name in ("launch", "border"):
            if getattr(self, name) < 0:
                raise DovetailError(f"{name}: {getattr(self, name)} is no price", "a number from 0 is expected")

    def fix_up(self, view: View, claims: Claims) -> Claims:
        """Withdraw unprofitable nodes; once nothing is left to withdraw, remark why there is more than one region."""
        own = cast("BackendView", view)  # the view that placement creates
        nodes, reads = list(view.model.graph), reads_of(view.model.graph)
        pinned = {claim.node for claim in claims.claims if claim.pinned}
        claimed = {claim.node for claim in claims.claims}
        legal = {node for node in nodes if node in claimed}
        lost = LostShapes(reads)
        gone = self._lost(own, lost.on_the_way(nodes, legal, pinned), pinned)
        legal -= gone
        users = users_of(reads)
        outside = read_outside_alone(nodes, legal - pinned, users, view.whole)
        moved = self._moved(own, [node for node in nodes if node in outside])
        gone |= moved
        legal -= moved
        stated = graph_problem(nodes, legal, reads, fused_groups_of(nodes, legal))
        regions, fixed = stated.regions(), stated.fixed()
        profitability = Profitability(reads, users, view.whole, self.launch, self.border)
        for region in regions:
            gone |= self._lost(own, lost.between(region), pinned)
            for part in profitability.worthless(region):
                gone |= self._dropped(own, part, pinned, fixed)
        if not gone:
            self._remark_cuts(view, regions, nodes, legal)
        return Claims([claim for claim in claims.claims if claim.node not in gone])

    def remedies(self, view: View, node: ir.Node) -> Iterator[Remedy]:
        """Yield pins for supported nodes that are unprofitable alone: of the node, and of the node with a neighbor."""
        name = view.backend.name
        if view.verdict(node).ok is False:
            return
        yield remedy((f"{node.name}={name}",))
        for other in (*view.producers(node), *view.readers(node)):
            owner = view.claimed(other.node)
            if (owner is None or owner[0] != name) and view.verdict(other.node).ok is not False:
                yield remedy((f"{node.name}={name}", f"{other.node.name}={name}"))

    def _lost(self, view: BackendView, found: Sequence[LostShape], pinned: set[ir.Node]) -> set[ir.Node]:
        gone: set[ir.Node] = set()
        for node, value, culprit, suggest in found:
            if node in pinned or node in gone or view.only_here(node):
                continue
            title = f"'{culprit.name}' ({culprit.op_type}) lost it" if culprit is not None else "the model gives none"
            why, name = f"it reads '{value.name}', whose shape nobody knows: {title}", view.backend.name
            because = (culprit,) if culprit is not None else ()
            view.remark("missed", node, "lost-shape", why, because=because, suggest=suggest, backend=name)
            self._withdrawn[node] = f"not on {name}: {why}"
            gone.add(node)
        return gone

    def _moved(self, view: BackendView, found: Sequence[ir.Node]) -> set[ir.Node]:
        gone = [node for node in found if not view.only_here(node)]
        why, name = "nodes outside of its regions alone read it, and have what it takes extents of", view.backend.name
        for node in gone:
            view.remark("missed", node, "moved", why, backend=name)
            self._withdrawn[node] = f"not on {name}: {why}"
        return set(gone)

    def _dropped(self, view: BackendView, part: RegionPart, pinned: set[ir.Node], fixed: set[ir.Node]) -> set[ir.Node]:
        if any(node in pinned or view.only_here(node) for node in part.nodes):
            return set()
        name, first, last = view.backend.name, part.nodes[0], part.nodes[-1]
        what = f"'{first.name}' to '{last.name}' save" if first is not last else f"'{first.name}' saves"
        counted = " (unknown extents count as 1)" if part.open_extents else ""
        costs = f"{part.border * self.border} bytes that cross the border and {self.launch} for the start of an engine"
        why = f"it is not worth an engine: {what} {part.gain} bytes{counted}, against {costs}"
        # Nodes that may be in another region move there in the next round, if that is profitable.
        going = [node for node in part.nodes if node in fixed] or list(part.nodes)
        for node in going:
            pin = shlex.join(["--pin", f"{node.name}={name}"])
            view.remark("missed", node, "not-worth-it", why, suggest=f"{pin} keeps it there", backend=name)
            self._withdrawn[node] = f"not on {name}: {why}"
        return set(going)

    def _remark_cuts(
        self, view: View, regions: Sequence[Sequence[ir.Node]], nodes: Sequence[ir.Node], legal: set[ir.Node]
    ) -> None:
        name = view.backend.name
        for cut in cuts(regions, nodes, legal, reads_of(view.model.graph)):
            first, last = cut.before[0], cut.before[-1]
            apart = f"'{first.name}' to '{last.name}'" if first is not last else f"'{first.name}'"
            why = (
                f"a region of {name} begins here, apart from that of {apart}: '{cut.reader.name}' waits for "
                f"'{cut.over.name}', which waits for that region; {why_outside(view, cut.over, self._why)}"
            )
            view.remark("analysis", cut.node, "cut", why, because=(cut.over,))

    def _why(self, node: ir.Node) -> str:
        return self._withdrawn.get(node, "")
