"""Split regions that hold more than their backend takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail_transforms.regions.regions import Region, regions_from, used_values

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph


_AHEAD = 64
"""How many nodes are looked at for one that uses up what a run has too many outputs of: this keeps splitting linear."""


def split_regions(
    graph: ir.Graph, regions: Sequence[Region], maxima: Mapping[str, Mapping[str, int]], flat: FlatGraph
) -> list[Region]:
    """Cut regions so that none has more nodes, inputs, outputs or constants than its backend takes.

    A region is cut into runs of its topological order, each as long as possible. Such runs are convex, like the region.
    A node that alone has too much is left as a region, which is then refused.

    Args:
        graph: The graph.
        regions: Its regions, in the order in which they run.
        maxima: The largest numbers of `nodes`, `inputs`, `outputs` and `constants` by backend; a number that is absent
            is free.
        flat: All nodes: those in bodies count.
    """
    if not any(maxima.get(region.backend) for region in regions):
        return list(regions)
    groups: list[Sequence[ir.Node]] = []
    for region in regions:
        limits = maxima.get(region.backend)
        groups += _Splitter(region, limits, flat).runs() if limits else [region.nodes]
    backend_of = {node: region.backend for region in regions for node in region.nodes}
    return regions_from(graph, groups, backend_of.__getitem__)


class _Splitter:
    """Cuts one region into runs.

    Args:
        region: The region.
        limits: The largest numbers of a run.
        flat: All nodes of the model.
    """

    def __init__(self, region: Region, limits: Mapping[str, int], flat: FlatGraph):
        self._nodes, self._limits = region.nodes, limits
        self._sizes = [1 + sum(1 for _ in flat.body_nodes(node)) for node in region.nodes]
        self._used = [used_values(node) for node in region.nodes]
        self._leaving = set(region.outputs)
        self._last_read = {value: at for at, values in enumerate(self._used) for value in values}

    def runs(self) -> list[tuple[ir.Node, ...]]:
        """The runs, in order."""
        runs, start = [], 0
        while start < len(self._nodes):
            end = self._end_of_run(start)
            runs.append(self._nodes[start:end])
            start = end
        return runs

    def _end_of_run(self, start: int) -> int:
        """Where the longest run from `start` on ends that has no more of anything than it may; one node at least."""
        end = start + 1
        size = 0
        inputs: set[ir.Value] = set()
        constants: set[ir.Value] = set()
        made: set[ir.Value] = set()
        # Outputs so far, and how many of them each later node uses up as their last reader.
        outputs = 0
        used_up: Counter[int] = Counter()
        for at in range(start, len(self._nodes)):
            size += self._sizes[at]
            constants.update(value for value in self._used[at] if value.is_initializer())
            inputs.update(value for value in self._used[at] if not value.is_initializer() and value not in made)
            counts = {"nodes": size, "inputs": len(inputs), "constants": len(constants)}
            if any(count > self._limits.get(name, count) for name, count in counts.items()):
                break
            made.update(self._nodes[at].outputs)
            outputs -= used_up[at]
            for value in self._nodes[at].outputs:
                outputs += value in self._leaving or value in self._last_read
                if value not in self._leaving and value in self._last_read:
                    used_up[self._last_read[value]] += 1
            if outputs <= self._limits.get("outputs", outputs):
                end = at + 1
            elif at - end >= _AHEAD:
                break
        return end
