"""Regions: cutting the main graph into convex sets of nodes of one backend, in an order that can be run.

A region is convex when no path leaves it and comes back, so every region can run as one unit. Control-flow nodes
are taken whole: what their bodies capture counts as their inputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.bodies import all_nodes, bodies
from dovetail.planning.placement import HOST, get_placement

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Region", "form_regions", "given_regions", "placed_backend", "slices", "used_values"]

MERGE_UP_TO = 256
"""Regions up to which merging is tried where more than two backends meet (it is cubic in their number)."""

SLICE = 4096
"""Nodes that are prepared together where one backend runs all: what engines do before they run is often not linear."""


@dataclass(frozen=True, eq=False)
class Region:
    """One unit of execution.

    Attributes:
        index: Its place in the order of execution.
        backend: Name of the backend that all its nodes have.
        nodes: In topological order; nodes of bodies belong to their control-flow node.
        inputs: Values that come from outside, without constants (initializers).
        outputs: Values that later regions use or the model gives.
    """

    index: int
    backend: str
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def placed_backend(node: ir.Node) -> str:
    """The backend of a node's placement, `host` where nothing placed it."""
    placement = get_placement(node)
    return placement.backend if placement else HOST


def form_regions(graph: ir.Graph, backend_of: Callable[[ir.Node], str] = placed_backend) -> list[Region]:
    """Cut `graph` into convex regions, in the order in which they can run.

    Nodes are taken in waves: everything of one backend that is ready, then everything of the next. No node of another
    backend runs during a wave, so a wave is convex and waves have no cycles. With two backends the better of both
    starts is optimal: every wave waits for the one before. With more, waves that can be merged are merged afterwards,
    up to `MERGE_UP_TO` of them. Apart from that the work is linear in nodes and edges.

    Raises:
        DovetailError: The graph has a cycle.
    """
    nodes = list(graph)
    position = {node: i for i, node in enumerate(nodes)}
    backends = [backend_of(node) for node in nodes]
    used = [tuple(dict.fromkeys(used_values(node))) for node in nodes]
    users, waiting = _dependencies(used, position)
    names = list(dict.fromkeys(backends))
    starts = (_waves(names[i:] + names[:i], backends, users, waiting) for i in range(len(names)))
    waves = min(starts, key=len, default=[])
    if sum(map(len, waves)) < len(nodes):
        done = {i for wave in waves for i in wave}
        stuck = next(node for i, node in enumerate(nodes) if i not in done)
        raise DovetailError(f"node '{stuck.name}' waits for its own result: the graph has a cycle")
    if len(names) > 2 and len(waves) <= MERGE_UP_TO:
        waves = _merged(waves, backends, users)
    return _regions(graph, nodes, [sorted(wave) for wave in waves], backends, used)


def given_regions(graph: ir.Graph, parts: Sequence[Sequence[ir.Node]], backend: str = HOST) -> list[Region]:
    """The regions that hold `parts`: all nodes of `graph`, each part behind those that it reads from."""
    nodes = [node for part in parts for node in part]
    waves, start = [], 0
    for part in parts:
        waves.append(list(range(start, start + len(part))))
        start += len(part)
    used = [tuple(dict.fromkeys(used_values(node))) for node in nodes]
    return _regions(graph, nodes, waves, [backend] * len(nodes), used)


def slices(graph: ir.Graph, size: int = SLICE) -> list[Region]:
    """Regions of the backend `host` with `size` nodes each, in graph order; one region if a border has no type."""
    nodes = list(graph)
    found = given_regions(graph, [nodes[start : start + size] for start in range(0, len(nodes), size)])
    typed = all(value.type is not None for region in found for value in region.inputs)
    return found if typed else given_regions(graph, [nodes])


def used_values(node: ir.Node) -> list[ir.Value]:
    """The values of a node's own graph that it or its bodies use, with repetitions."""
    used = [value for value in node.inputs if value is not None]
    for body in bodies(node):
        inner = (value for nested in all_nodes(body) for value in nested.inputs if value is not None)
        used += [value for value in (*inner, *_body_outputs(body)) if value.graph is node.graph]
    return used


def _body_outputs(body: ir.Graph) -> Iterator[ir.Value]:
    """Outputs of a body and of the bodies in it: they may be values of the outer graph."""
    yield from body.outputs
    for nested in body.subgraphs():
        yield from nested.outputs


def _dependencies(used: list[tuple[ir.Value, ...]], position: dict[ir.Node, int]) -> tuple[list[list[int]], list[int]]:
    """For every node those that wait for it, and for how many nodes it waits itself."""
    users: list[list[int]] = [[] for _ in used]
    waiting = [0] * len(used)
    for i, values in enumerate(used):
        for producer in {value.producer() for value in values} - {None}:
            users[position[producer]].append(i)
            waiting[i] += 1
    return users, waiting


def _waves(names: list[str], backends: list[str], users: list[list[int]], waiting: list[int]) -> list[list[int]]:
    """Nodes in waves, beginning with the first backend of `names` and going round."""
    waiting = list(waiting)
    ready: dict[str, list[int]] = {name: [] for name in names}
    for i, count in enumerate(waiting):
        if not count:
            ready[backends[i]].append(i)  # ascending, so a heap already
    waves, turn = [], 0
    while any(ready.values()):
        queue, wave = ready[names[turn % len(names)]], []
        while queue:
            i = heapq.heappop(queue)
            wave.append(i)
            for user in users[i]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready[backends[user]], user)
        if wave:
            waves.append(wave)
        turn += 1
    return waves


def _merged(waves: list[list[int]], backends: list[str], users: list[list[int]]) -> list[list[int]]:
    """Waves after merging every pair of one backend that has no third wave on a path between them."""
    while True:
        wave_of = {node: i for i, wave in enumerate(waves) for node in wave}
        after = [{wave_of[user] for node in wave for user in users[node]} - {i} for i, wave in enumerate(waves)]
        reach = [0] * len(waves)  # bit sets; edges only go to later waves
        for i in reversed(range(len(waves))):
            for later in after[i]:
                reach[i] |= reach[later] | 1 << later
        pair = next(
            (
                (i, j)
                for i, wave in enumerate(waves)
                for j in range(i + 1, len(waves))
                if backends[wave[0]] == backends[waves[j][0]] and not any(reach[k] >> j & 1 for k in after[i] if k != j)
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


def _regions(
    graph: ir.Graph,
    nodes: list[ir.Node],
    waves: list[list[int]],
    backends: list[str],
    used: list[tuple[ir.Value, ...]],
) -> list[Region]:
    """Waves with the values that cross their borders."""
    home = {output: w for w, wave in enumerate(waves) for i in wave for output in nodes[i].outputs}
    inputs: list[dict[ir.Value, None]] = [{} for _ in waves]
    leaving = {value for value in graph.outputs if value in home}
    for w, wave in enumerate(waves):
        for value in (value for i in wave for value in used[i]):
            if home.get(value) != w and not value.is_initializer():
                inputs[w][value] = None
                leaving.add(value)
    regions = []
    for w, wave in enumerate(waves):
        own = tuple(nodes[i] for i in wave)
        outputs = tuple(output for node in own for output in node.outputs if output in leaving)
        regions.append(Region(w, backends[wave[0]], own, tuple(inputs[w]), outputs))
    return regions
