"""The partitioner `engine-regions`: as few regions as possible, with the cheapest borders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.plugin import Partitioner

from dovetail_placement.engine_regions.graph_problem import fused_groups_of, graph_problem
from dovetail_placement.reasons import refused_part, why_refused

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Reads
    from dovetail.plugin import RegionView, View


class EngineRegions(Partitioner):
    """Forms regions for engines built ahead of time.

    Nodes of other backends count one by one, since their regions are not known here. If several backends name this
    partitioner, the regions of one are units for the next.
    """

    def form(self, view: RegionView) -> list[list[ir.Node]]:
        """Return the regions of `view.nodes`."""
        nodes, formed, found = list(view.graph), [tuple(group) for group in view.formed], []
        for backend in view.backends:
            legal = {node for node in view.nodes if view.backend_of(node) == backend}
            if legal:
                stated = graph_problem(nodes, legal, view.reads, fused_groups_of(nodes, legal), formed)
                found += stated.regions()
                formed = [*map(tuple, view.formed), *map(tuple, found)]
        return found


class Cut(NamedTuple):
    """The reason why two regions cannot be merged.

    Attributes:
        node: The first node of the later region.
        before: The earlier region.
        over: The outside node that depends on the earlier region.
        reader: The node of the later region that depends on `over`.
    """

    node: ir.Node
    before: Sequence[ir.Node]
    over: ir.Node
    reader: ir.Node


def cuts(
    regions: Sequence[Sequence[ir.Node]], nodes: Sequence[ir.Node], legal: Collection[ir.Node], reads: Reads
) -> Iterator[Cut]:
    """Yield the cuts between regions, one for each region but the first.

    Args:
        regions: The regions, in execution order.
        nodes: The nodes of the graph, in topological order.
        legal: The nodes that are in regions.
        reads: The values that each node uses.
    """
    home = {node: at for at, region in enumerate(regions) for node in region}
    # For every node outside, the last region that it depends on.
    waits: dict[ir.Node, int] = {}
    found: dict[int, tuple[int, ir.Node, ir.Node]] = {}
    for node in nodes:
        before = [producer for value in reads[node] if (producer := value.producer()) is not None]
        if node not in legal:
            waits[node] = max((home[p] if p in legal else waits.get(p, -1) for p in before), default=-1)
            continue
        for producer in before:
            if producer not in legal and waits.get(producer, -1) >= 0:
                last = found.get(home[node], (-1,))[0]
                if waits[producer] > last:
                    found[home[node]] = (waits[producer], producer, node)
    for at, (earlier, over, reader) in sorted(found.items(), key=lambda entry: entry[0]):
        yield Cut(regions[at][0], regions[earlier], over, reader)


def why_outside(view: View, node: ir.Node, withdrawn: Callable[[ir.Node], str]) -> str:
    """Explain why a node is in no region of the view's backend."""
    name = view.backend.name
    if reason := withdrawn(node):
        return reason
    if (refused := refused_part(view, node)) is not None:
        why = why_refused(view, refused)
        return f"not on {name}: {why}" if refused is node else f"'{refused.name}' in its body is not on {name}: {why}"
    owner = view.claimed(node)
    return f"it is on {owner[0]}" if owner else f"{name} refused it in a round before"
