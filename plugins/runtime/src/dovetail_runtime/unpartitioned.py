"""Regions of graphs without a partitioner: formed from the nodes that are ready on each backend, or slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import reads_of
from dovetail.planning import Region, given_regions, placed_backend, regions_from

if TYPE_CHECKING:
    import onnx_ir as ir


SLICE = 4096
"""Nodes prepared together if one backend runs all: engine preparation is often superlinear."""


def ready_regions(graph: ir.Graph, backend_of: Callable[[ir.Node], str] = placed_backend) -> list[Region]:
    """Return regions of an unpartitioned graph: all ready nodes of one backend, then all of the next.

    No node of another backend runs during a region, so each region is convex. A partitioner may need fewer regions.
    Linear in nodes and edges.

    Raises:
        DovetailError: The graph has a cycle.
    """
    reads = reads_of(graph)
    position = {node: i for i, node in enumerate(graph)}
    users: dict[ir.Node, list[ir.Node]] = {node: [] for node in graph}
    waiting: dict[ir.Node, int] = {}
    ready: dict[str, list[ir.Node]] = {}
    for node, values in reads.items():
        producers = {producer for value in values if (producer := value.producer()) is not None}
        waiting[node] = len(producers)
        for producer in producers:
            users[producer].append(node)
        if not producers:
            ready.setdefault(backend_of(node), []).append(node)
    groups: list[list[ir.Node]] = []
    while ready:
        backend = next(iter(ready))
        queue, group = ready.pop(backend), []
        while queue:
            group.append(node := queue.pop())
            for user in users[node]:
                waiting[user] -= 1
                if not waiting[user]:
                    other = backend_of(user)
                    (queue if other == backend else ready.setdefault(other, [])).append(user)
        groups.append(sorted(group, key=position.__getitem__))
    if stuck := next((node for node, count in waiting.items() if count), None):
        raise DovetailError(f"node '{stuck.name}' waits for its own result: the graph has a cycle")
    return regions_from(graph, groups, backend_of, reads)


def slices(graph: ir.Graph, size: int = SLICE) -> list[Region]:
    """Return regions of the backend `host` with `size` nodes each, in graph order, or one if a border is untyped."""
    nodes = list(graph)
    found = given_regions(graph, [nodes[start : start + size] for start in range(0, len(nodes), size)])
    typed = all(value.type is not None for region in found for value in region.inputs)
    return found if typed else given_regions(graph, [nodes])
