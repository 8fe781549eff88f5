"""Split regions that hold more than their backend takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.runtime.regions import Region, regions_from, used_values

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph

__all__ = ["split_regions"]


def split_regions(
    graph: ir.Graph, regions: Sequence[Region], maxima: Mapping[str, Mapping[str, int]], flat: FlatGraph
) -> list[Region]:
    """Cut regions so that none has more nodes, inputs or constants than its backend takes.

    A region is cut into runs of its topological order, each as long as possible. Such runs are convex, like the region.
    A node that alone has too much is left as a region, which is then refused.

    Args:
        graph: The graph.
        regions: Its regions, in the order in which they run.
        maxima: The largest numbers of `nodes`, `inputs` and `constants` by backend; a number that is absent is free.
        flat: All nodes: those in bodies count.
    """
    if not any(maxima.get(region.backend) for region in regions):
        return list(regions)
    groups: list[list[ir.Node]] = []
    for region in regions:
        limits = maxima.get(region.backend)
        groups += _runs(region, limits, flat) if limits else [list(region.nodes)]
    backend_of = {node: region.backend for region in regions for node in region.nodes}
    return regions_from(graph, groups, backend_of.__getitem__)


def _runs(region: Region, limits: Mapping[str, int], flat: FlatGraph) -> list[list[ir.Node]]:
    runs: list[list[ir.Node]] = []
    size, inputs, constants, made = 0, set(), set(), set()
    for node in region.nodes:
        weight = 1 + sum(1 for _ in flat.body_nodes(node))
        used = used_values(node)
        entering = {value for value in used if not value.is_initializer() and value not in made}
        stored = {value for value in used if value.is_initializer()}
        counts = {"nodes": size + weight, "inputs": len(inputs | entering), "constants": len(constants | stored)}
        if runs and any(counts[name] > limit for name, limit in limits.items()):
            runs.append([])
            size, made = 0, set()
            entering = {value for value in used if not value.is_initializer()}
            inputs, constants = set(), set()
        if not runs:
            runs.append([])
        runs[-1].append(node)
        size += weight
        inputs |= entering
        constants |= stored
        made.update(node.outputs)
    return runs
