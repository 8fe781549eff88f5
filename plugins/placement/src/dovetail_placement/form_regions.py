"""The `form-regions` pass, and the partitioner `topological`: regions in topological order, backend by backend."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph
from dovetail.passes import Pass
from dovetail.planning import Placement, get_placement, set_placement
from dovetail.plugin import Partitioner
from dovetail_transforms.regions.regions import (
    Groups,
    Reads,
    Region,
    placed_backend,
    reads_of,
    regions_from,
)

from dovetail_placement.conversion_regions import copy_conversions, settled_regions
from dovetail_placement.conversions import place_later_nodes
from dovetail_placement.region_splitting import split_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import RegionView


DEFAULT_PARTITIONER = "topological"
"""The partitioner of backends that name none."""


class Topological(Partitioner):
    """Forms as few regions as possible: see `dovetail_placement.form_regions`."""

    def form(self, view: RegionView) -> list[list[ir.Node]]:
        """Return the regions of `view.nodes`, ordered consistently with the regions already formed."""

        groups = topological_groups(view.graph, view.backend_of, view.reads, view.formed)
        wanted = set(view.nodes)
        return [group for group in groups if group[0] in wanted]


@dataclass(frozen=True)
class FormRegions(Pass):
    """Number the regions: maximal convex sets of nodes of one backend, in topological order.

    Given:  every node has a backend
    Result: every node has the number of its region; nodes of bodies share that of their control-flow node.
    """

    name = "form-regions"
    stage = "outline"

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate all nodes, including those added after placement.

        The graph changes only where several regions read one conversion: each gets its own copy.
        """
        place_later_nodes(model, ctx)
        copied, formed = False, _formed(model, ctx)
        while copy_conversions(model, formed, _floats_cross(ctx), ctx):
            copied, formed = True, _formed(model, ctx)
        number_regions(model, ctx, formed)
        return copied


def number_regions(model: Model, ctx: Context, formed: list[Region] | None = None) -> None:
    """Number the regions of `model`. Runs twice: for the plan before casts are inserted, and again afterwards.

    Args:
        model: A placed model.
        ctx: The context of the run.
        formed: The regions as partitioned; None to ask the partitioners.
    """
    flat = ctx.analysis(FlatGraph, model)
    regions = _within_limits(model, _formed(model, ctx) if formed is None else formed, ctx)
    for region in regions:
        # Nodes that share a placement object keep sharing one. Ids stay valid: the placements outlive this loop.
        moved: dict[int, Placement] = {}
        bodies = (part for node in region.nodes for part in flat.body_nodes(node)) if flat.holders else ()
        for part in chain(region.nodes, bodies):
            before = get_placement(part)
            assert before is not None
            after = moved.get(id(before)) or moved.setdefault(id(before), before.in_region(region.index))
            set_placement(part, after)
    ctx.count("regions", len(regions))


def regions_of(model: Model, ctx: Context) -> list[Region]:
    """Return the regions of a placed model, formed by the backends' partitioners, within their size limits.

    Raises:
        DovetailError: A partitioner is not installed, or violates its contract.
    """
    return _within_limits(model, _formed(model, ctx), ctx)


def _within_limits(model: Model, formed: list[Region], ctx: Context) -> list[Region]:
    """Return the regions with conversions where they belong, split where they exceed a limit of their backend."""
    regions = settled_regions(model.graph, formed, _floats_cross(ctx))
    maxima = {backend.name: backend.region_maxima for backend in ctx.backends}
    return split_regions(model.graph, regions, maxima, ctx.analysis(FlatGraph, model))


def _formed(model: Model, ctx: Context) -> list[Region]:
    """Return the regions as partitioned, before limits apply."""
    from dovetail_transforms.regions.regions import placed_backend

    from dovetail_placement.partitioning import formed_regions

    partitioner_of = {backend.name: backend.regions or DEFAULT_PARTITIONER for backend in ctx.backends}
    partitioner_of.setdefault(ctx.host.name, ctx.host.regions or DEFAULT_PARTITIONER)
    # The default partitioner handles the remaining nodes, so it comes last.
    ordered = sorted(partitioner_of, key=lambda name: partitioner_of[name] == DEFAULT_PARTITIONER)
    partitioners = {name: partitioner_of[name] for name in ordered}
    chosen = {backend.name: backend for backend in (*ctx.backends, ctx.host)}
    return formed_regions(model.graph, partitioners, ctx.registry, placed_backend, chosen, ctx.request)


def _floats_cross(ctx: Context) -> dict[str, tuple[bool, bool]]:
    """Return, per backend with a `border` setting, whether floats enter and leave regions that compute in integers."""
    borders = {backend.name: backend.border for backend in ctx.backends}
    ends = {name: (border.into, border.out) for name, border in borders.items() if border is not None}
    return {name: (into == "inside", out == "inside") for name, (into, out) in ends.items()}


MERGE_UP_TO = 256
"""Maximum number of regions for merging with more than two backends (merging is cubic in their number)."""


def form_regions(graph: ir.Graph, backend_of: Callable[[ir.Node], str] = placed_backend) -> list[Region]:
    """Partition `graph` into convex regions, in an executable order; see `topological_groups`.

    Raises:
        DovetailError: The graph has a cycle.
    """
    reads = reads_of(graph)
    return regions_from(graph, topological_groups(graph, backend_of, reads), backend_of, reads)


def topological_groups(
    graph: ir.Graph, backend_of: Callable[[ir.Node], str], reads: Reads, formed: Groups = ()
) -> list[list[ir.Node]]:
    """Return the nodes of `graph` in convex groups of one backend each, in an executable order.

    No node of another backend runs during a group, so groups are convex and acyclic. With two backends, the better
    choice of the first backend is optimal: every group depends on the one before. With more, groups are merged
    afterwards where possible, up to `MERGE_UP_TO` of them. Apart from merging, the work is linear in nodes and edges.

    Args:
        graph: The graph.
        backend_of: The backend of a node.
        reads: The values that each node uses.
        formed: Groups that are not changed; the others are formed from the remaining nodes.

    Raises:
        DovetailError: The graph has a cycle, or the groups in `formed` create one.
    """
    held = {node for group in formed for node in group}
    single = [node for node in graph if node not in held] if held else list(graph)
    # A unique label per formed group keeps it from being merged.
    labels: list[str | int] = [*map(backend_of, single), *range(len(formed))]
    users, waiting = _dependencies(single, formed, reads)
    names = list(dict.fromkeys(labels[: len(single)]))
    starts = (_waves(names[i:] + names[:i], labels, users, waiting) for i in range(max(len(names), 1)))
    groups = min(starts, key=len)
    if sum(map(len, groups)) < len(labels):
        done = {i for group in groups for i in group}
        stuck = next(node for i, node in enumerate([*single, *(group[0] for group in formed)]) if i not in done)
        raise DovetailError(f"node '{stuck.name}' waits for its own result: the graph has a cycle")
    if len(names) > 2 and len(groups) <= MERGE_UP_TO:
        groups = _merged(groups, labels, users)
    # A unit is a single node or, numbered after all of these, a formed group.
    first = len(single)
    return [
        list(formed[group[0] - first]) if group[0] >= first else [single[i] for i in sorted(group)] for group in groups
    ]


def _dependencies(single: Sequence[ir.Node], formed: Groups, reads: Reads) -> tuple[list[list[int]], list[int]]:
    """Return the dependents of every unit, and the number of units that it depends on."""
    position = {node: i for i, node in enumerate(single)}
    position |= {node: i for i, group in enumerate(formed, len(single)) for node in group}
    users: list[list[int]] = [[] for _ in range(len(single) + len(formed))]
    waiting = [0] * len(users)
    for i, node in enumerate(single):
        for producer in {made_by for value in reads[node] if (made_by := value.producer()) is not None}:
            users[position[producer]].append(i)
            waiting[i] += 1
    for i, group in enumerate(formed, len(single)):
        values = (value for node in group for value in reads[node])
        producers = {made_by for value in values if (made_by := value.producer()) is not None}
        for before in {position[producer] for producer in producers} - {i}:
            users[before].append(i)
            waiting[i] += 1
    return users, waiting


def _waves(
    names: list[str | int], labels: list[str | int], users: list[list[int]], waiting: list[int]
) -> list[list[int]]:
    """Group units in topological order, beginning with the first backend of `names`; formed groups stay as they are."""
    waiting = list(waiting)
    ready: dict[str | int, list[int]] = {name: [] for name in names}
    formed: list[int] = []
    for i, count in enumerate(waiting):
        if not count:
            ready.get(labels[i], formed).append(i)  # ascending, so already a heap
    groups, turn = [], 0
    while formed or any(ready.values()):
        queue = formed if formed else ready[names[turn % len(names)]]
        group: list[int] = []
        turn += queue is not formed
        while queue and (queue is not formed or not group):
            i = heapq.heappop(queue)
            group.append(i)
            for user in users[i]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready.get(labels[user], formed), user)
        if group:
            groups.append(group)
    return groups


def _merged(groups: list[list[int]], labels: list[str | int], users: list[list[int]]) -> list[list[int]]:
    """Merge every pair of groups of one backend without a third group on a path between them."""
    while True:
        group_of = {unit: i for i, group in enumerate(groups) for unit in group}
        after = [{group_of[user] for unit in group for user in users[unit]} - {i} for i, group in enumerate(groups)]
        reach = [0] * len(groups)  # bit sets; edges only lead to later groups
        for i in reversed(range(len(groups))):
            for later in after[i]:
                reach[i] |= reach[later] | 1 << later
        pair = next(
            (
                (i, j)
                for i, group in enumerate(groups)
                for j in range(i + 1, len(groups))
                if labels[group[0]] == labels[groups[j][0]] and not any(reach[k] >> j & 1 for k in after[i] if k != j)
            ),
            None,
        )
        if pair is None:
            return groups
        groups = _joined(groups, *pair, reach)


def _joined(groups: list[list[int]], i: int, j: int, reach: list[int]) -> list[list[int]]:
    """Merge group j into group i: predecessors of j move before it, and successors of i stay after it."""
    between = range(i + 1, j)
    before = [groups[k] for k in between if not reach[i] >> k & 1]
    behind = [groups[k] for k in between if reach[i] >> k & 1]
    return [*groups[:i], *before, groups[i] + groups[j], *behind, *groups[j + 1 :]]
