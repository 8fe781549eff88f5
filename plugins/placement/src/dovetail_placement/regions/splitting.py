"""Splitting of regions that are larger than their backend accepts, and the counts that its limits are about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph, used_values
from dovetail.planning import Region, get_placement, regions_from
from dovetail_onnx.signatures import Signatures, input_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format


_AHEAD = 64
"""Maximum lookahead for a node that reduces a run's excess outputs; keeps splitting linear."""


def split_regions(
    graph: ir.Graph, regions: Sequence[Region], maxima: Mapping[str, Mapping[str, int]], flat: FlatGraph
) -> list[Region]:
    """Split regions that have more nodes, inputs, outputs, constants or bytes of weights than their backend accepts.

    A region is cut into runs of its topological order, each as long as possible. Such runs are convex, like the region.
    A node that exceeds a limit on its own becomes a region, which is rejected later.

    Args:
        graph: The graph.
        regions: Its regions, in execution order.
        maxima: Maximum numbers of `nodes`, `inputs`, `outputs`, `constants` and `bytes` by backend; an absent number
            is unlimited.
        flat: All nodes, including those in bodies, which count.
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
    """Splits one region into runs.

    Args:
        region: The region.
        limits: The maximum numbers of a run.
        flat: All nodes of the model.
    """

    def __init__(self, region: Region, limits: Mapping[str, int], flat: FlatGraph):
        self._nodes, self._limits = region.nodes, limits
        self._sizes = [1 + sum(1 for _ in flat.body_nodes(node)) for node in region.nodes]
        self._used = [used_values(node) for node in region.nodes]
        self._weights = _weights(region.nodes) if "bytes" in limits else None
        self._leaving = set(region.outputs)
        self._last_read = {value: at for at, values in enumerate(self._used) for value in values}

    def runs(self) -> list[tuple[ir.Node, ...]]:
        """Return the runs, in order."""
        runs, start = [], 0
        while start < len(self._nodes):
            end = self._end_of_run(start)
            runs.append(self._nodes[start:end])
            start = end
        return runs

    def _end_of_run(self, start: int) -> int:
        """Return the end of the longest run from `start` on within the limits; it has at least one node."""
        end = start + 1
        size = 0
        inputs: set[ir.Value] = set()
        constants: set[ir.Value] = set()
        weights: dict[ir.Value, int] = {}
        held = 0
        made: set[ir.Value] = set()
        # Outputs so far, and the number of them whose last use is each later node.
        outputs = 0
        used_up: Counter[int] = Counter()
        for at in range(start, len(self._nodes)):
            size += self._sizes[at]
            constants.update(value for value in self._used[at] if value.is_initializer())
            inputs.update(value for value in self._used[at] if not value.is_initializer() and value not in made)
            for value, count in self._weights[at] if self._weights is not None else ():
                held += max(0, count - weights.get(value, 0))
                weights[value] = max(count, weights.get(value, 0))
            counts = {"nodes": size, "inputs": len(inputs), "constants": len(constants), "bytes": held}
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


def counts_of(region: Region, flat: FlatGraph) -> dict[str, int]:
    """Return the numbers that limits on regions may name: `nodes`, `inputs`, `outputs`, `constants` and `bytes`.

    Args:
        region: The region.
        flat: All nodes of the model, including those in bodies, which count.
    """
    largest: dict[ir.Value, int] = {}
    for found in _weights(region.nodes):
        for value, count in found:
            largest[value] = max(count, largest.get(value, 0))
    return {
        "nodes": sum(1 + sum(1 for _ in flat.body_nodes(node)) for node in region.nodes),
        "inputs": len(region.inputs),
        "outputs": len(region.outputs),
        "constants": len(region.constants),
        "bytes": sum(largest.values()),
    }


def _weights(nodes: Iterable[ir.Node]) -> list[list[tuple[ir.Value, int]]]:
    """Return the weights that each node or its bodies read, with their sizes in bytes in the formats that are read.

    A node that is not typed yet has none: their sizes are unknown.
    """
    signatures: Signatures | None = None
    found: list[list[tuple[ir.Value, int]]] = []
    for node in nodes:
        placement = get_placement(node)
        used = [value for value in used_values(node) if value.is_initializer()]
        if not used or placement is None or placement.precision is None:
            found.append([])
            continue
        if signatures is None:
            assert node.graph is not None
            signatures = Signatures(node.graph.opset_imports)
        signature = signatures(node)
        ports = {value: input_name(at, signature) for at, value in enumerate(node.inputs) if value is not None}
        formats = {value: placement.port_format(port) for value, port in ports.items()}
        found.append([(value, _size(value, formats.get(value))) for value in used])
    return found


def _size(value: ir.Value, read_in: Format | None) -> int:
    """Return the size of a weight in bytes; integers are stored as they are, floats in the format that is read."""
    if value.dtype is None or value.dtype.name == "STRING":
        return 0
    bits = value.dtype.bitwidth
    if value.dtype.is_floating_point() and read_in is not None:
        bits = read_in.dtype.bitwidth
    count = math.prod(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else 0
    return -(-count * bits // 8)
