"""Regions by waves: everything of one backend that is ready, then everything of the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail_transforms.regions.regions import Groups, Reads, Region, placed_backend, reads_of, regions_from

if TYPE_CHECKING:
    import onnx_ir as ir


MERGE_UP_TO = 256
"""Regions up to which merging is tried where more than two backends meet (it is cubic in their number)."""


def form_regions(graph: ir.Graph, backend_of: Callable[[ir.Node], str] = placed_backend) -> list[Region]:
    """Cut `graph` into convex regions, in the order in which they can run; see `wave_groups`.

    Raises:
        DovetailError: The graph has a cycle.
    """
    reads = reads_of(graph)
    return regions_from(graph, wave_groups(graph, backend_of, reads), backend_of, reads)


def wave_groups(
    graph: ir.Graph, backend_of: Callable[[ir.Node], str], reads: Reads, formed: Groups = ()
) -> list[list[ir.Node]]:
    """Return the nodes of `graph` in convex groups of one backend each, in the order in which they can run.

    No node of another backend runs during a wave, so a wave is convex and waves have no cycles. With two backends the
    better of both starts is optimal: every wave waits for the one before. With more, waves that can be merged are
    merged afterwards, up to `MERGE_UP_TO` of them. Apart from that the work is linear in nodes and edges.

    Args:
        graph: The graph.
        backend_of: The backend of a node.
        reads: The values that each node uses.
        formed: Groups that stay as they are; the waves go around them.

    Raises:
        DovetailError: The graph has a cycle, or the groups in `formed` make one.
    """
    held = {node for group in formed for node in group}
    single = [node for node in graph if node not in held] if held else list(graph)
    # Each formed group has a label of its own, so that it is never merged with another.
    labels: list[str | int] = [*map(backend_of, single), *range(len(formed))]
    users, waiting = _dependencies(single, formed, reads)
    names = list(dict.fromkeys(labels[: len(single)]))
    starts = (_waves(names[i:] + names[:i], labels, users, waiting) for i in range(max(len(names), 1)))
    waves = min(starts, key=len)
    if sum(map(len, waves)) < len(labels):
        done = {i for wave in waves for i in wave}
        stuck = next(node for i, node in enumerate([*single, *(group[0] for group in formed)]) if i not in done)
        raise DovetailError(f"node '{stuck.name}' waits for its own result: the graph has a cycle")
    if len(names) > 2 and len(waves) <= MERGE_UP_TO:
        waves = _merged(waves, labels, users)
    # A unit is a single node, or by the numbers behind those a formed group.
    first = len(single)
    return [list(formed[wave[0] - first]) if wave[0] >= first else [single[i] for i in sorted(wave)] for wave in waves]


def _dependencies(single: Sequence[ir.Node], formed: Groups, reads: Reads) -> tuple[list[list[int]], list[int]]:
    """For every unit those that wait for it, and for how many units it waits itself."""
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
    """Units in waves, beginning with the first backend of `names` and going round; formed groups run between waves."""
    waiting = list(waiting)
    ready: dict[str | int, list[int]] = {name: [] for name in names}
    formed: list[int] = []
    for i, count in enumerate(waiting):
        if not count:
            ready.get(labels[i], formed).append(i)  # ascending, so a heap already
    waves, turn = [], 0
    while formed or any(ready.values()):
        queue = formed if formed else ready[names[turn % len(names)]]
        wave: list[int] = []
        turn += queue is not formed
        while queue and (queue is not formed or not wave):
            i = heapq.heappop(queue)
            wave.append(i)
            for user in users[i]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready.get(labels[user], formed), user)
        if wave:
            waves.append(wave)
    return waves


def _merged(waves: list[list[int]], labels: list[str | int], users: list[list[int]]) -> list[list[int]]:
    """Waves after merging every pair of one backend that has no third wave on a path between them."""
    while True:
        wave_of = {unit: i for i, wave in enumerate(waves) for unit in wave}
        after = [{wave_of[user] for unit in wave for user in users[unit]} - {i} for i, wave in enumerate(waves)]
        reach = [0] * len(waves)  # bit sets; edges only go to later waves
        for i in reversed(range(len(waves))):
            for later in after[i]:
                reach[i] |= reach[later] | 1 << later
        pair = next(
            (
                (i, j)
                for i, wave in enumerate(waves)
                for j in range(i + 1, len(waves))
                if labels[wave[0]] == labels[waves[j][0]] and not any(reach[k] >> j & 1 for k in after[i] if k != j)
            ),
            None,
        )
        if pair is None:
            return waves
        waves = _joined(waves, *pair, reach)


def _joined(waves: list[list[int]], i: int, j: int, reach: list[int]) -> list[list[int]]:
    """The order with wave j merged into wave i: what leads to j moves before it, what i leads to stays behind."""
    between = range(i + 1, j)
    before = [waves[k] for k in between if not reach[i] >> k & 1]
    behind = [waves[k] for k in between if reach[i] >> k & 1]
    return [*waves[:i], *before, waves[i] + waves[j], *behind, *waves[j + 1 :]]
