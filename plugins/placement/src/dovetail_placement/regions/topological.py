"""The partitioner `topological`: as few regions as possible, in topological order, backend by backend."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import reads_of
from dovetail.planning import Region, numbered_regions, placed_backend, regions_from
from dovetail.plugin import Partitioner

from dovetail_placement.regions.order import dependencies

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Reads
    from dovetail.planning import Groups
    from dovetail.plugin import RegionView


MERGE_UP_TO = 256
"""Maximum number of regions for merging with more than two backends (merging is cubic in their number)."""


def numbered_or_formed(graph: ir.Graph) -> list[Region]:
    """Return the regions that a placed model has numbers for, or as `topological` forms them if it has none.

    Raises:
        DovetailError: The graph has a cycle.
    """
    found = numbered_regions(graph)
    if found is not None:
        return found
    reads = reads_of(graph)
    return regions_from(graph, topological_groups(graph, placed_backend, reads), placed_backend, reads)


class Topological(Partitioner):
    """Forms as few regions as possible: see `topological_groups`."""

    def form(self, view: RegionView) -> list[list[ir.Node]]:
        """Return the regions of `view.nodes`, ordered consistently with the regions already formed."""

        groups = topological_groups(view.graph, view.backend_of, view.reads, view.formed)
        wanted = set(view.nodes)
        return [group for group in groups if group[0] in wanted]


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
    users, waiting = dependencies([*([node] for node in single), *formed], reads)
    names = list(dict.fromkeys(labels[: len(single)]))
    starts = (_in_turns(names[i:] + names[:i], labels, users, waiting) for i in range(max(len(names), 1)))
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


def _in_turns(
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
