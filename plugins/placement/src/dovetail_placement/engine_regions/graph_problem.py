"""The partitioning problem of a graph, with nodes and values as integers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir import is_onnx
from dovetail.planning import kind_of

from dovetail_placement.edge_kinds import operator_facts
from dovetail_placement.engine_regions.local_search import cut
from dovetail_placement.engine_regions.problem import OUTSIDE, Problem, Traffic, choices
from dovetail_placement.regions.order import dependencies, executable_order

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Reads
    from dovetail.planning import Groups


SHAPE_BYTES = 1 << 12
"""Minimum weight, in bytes, of integers that determine shapes: an engine that reads them must know their values."""

FUSED_GROUP_BYTES = 1 << 20
"""Cost of splitting a fused group, in bytes: its values are written and read, and one more kernel is launched."""


@dataclass(frozen=True)
class GraphProblem:
    """A partitioning problem and the nodes behind its integers.

    Attributes:
        problem: The problem.
        units: The nodes of every integer: a single node, or an already formed region.
    """

    problem: Problem
    units: Sequence[tuple[ir.Node, ...]]

    def fixed(self) -> set[ir.Node]:
        """Return the legal nodes that can be in one region only."""
        low, high, _ = choices(self.problem)
        return {n for unit, a, b in zip(self.units, low, high, strict=True) if a == b for n in unit}

    def regions(self) -> list[list[ir.Node]]:
        """Partition the legal nodes into regions, in an executable order."""
        found: dict[int, list[ir.Node]] = {}
        for unit, region in zip(self.units, cut(self.problem), strict=True):
            if region != OUTSIDE:
                found.setdefault(region, []).extend(unit)
        return [found[region] for region in sorted(found)]


def graph_problem(
    nodes: Sequence[ir.Node],
    legal: Collection[ir.Node],
    reads: Reads,
    fused_groups: Sequence[Sequence[ir.Node]] = (),
    formed: Groups = (),
) -> GraphProblem:
    """Build the partitioning problem of a graph.

    Args:
        nodes: All nodes of the graph, in topological order.
        legal: The nodes to be partitioned.
        reads: The values that each node uses.
        fused_groups: Sets of nodes that an engine fuses.
        formed: Existing regions of other nodes, which are not changed.
    """
    held = {node for group in formed for node in group}
    units = _ordered([*(tuple(group) for group in formed), *((n,) for n in nodes if n not in held)], nodes, reads)
    number = {node: at for at, unit in enumerate(units) for node in unit}
    readers: dict[ir.Value, dict[int, None]] = {}
    for node in nodes:
        for value in reads[node]:
            if not value.is_initializer():
                readers.setdefault(value, {})[number[node]] = None
    for node in nodes:
        for value in node.outputs:
            if value.is_graph_output():
                readers.setdefault(value, {})
    values = []
    for value, reading in readers.items():
        producer = value.producer()
        home = OUTSIDE if producer is None else number.get(producer, OUTSIDE)
        others = tuple(sorted(reader for reader in reading if reader != home))
        if others or home != OUTSIDE:
            values.append(Traffic(_weight(value), home, others, value.is_graph_output()))
    groups = [tuple(sorted({number[node] for node in fused_group})) for fused_group in fused_groups]
    known = [len(unit) == 1 and unit[0] in legal for unit in units]
    return GraphProblem(Problem(known, values, groups, fused_group=FUSED_GROUP_BYTES), units)


def _weight(value: ir.Value) -> int:
    return max(size_of(value), SHAPE_BYTES) if kind_of(value) == "shape" else size_of(value)


def size_of(value: ir.Value) -> int:
    """Return the size of a value in bytes; unknown extents count as 1, and an unknown type as one byte."""
    count = 1
    for extent in value.shape or ():
        if isinstance(extent, int):
            count *= extent
    bits = value.dtype.bitwidth if value.dtype is not None and value.dtype.name != "STRING" else 8
    return -(-count * bits // 8)


def _ordered(units: list[tuple[ir.Node, ...]], nodes: Sequence[ir.Node], reads: Reads) -> list[tuple[ir.Node, ...]]:
    """Return the units in an executable order, by their first nodes if that is one."""
    position: Mapping[ir.Node, int] = {node: at for at, node in enumerate(nodes)}
    if all(len(unit) == 1 for unit in units):
        return sorted(units, key=lambda unit: position[unit[0]])
    return [units[at] for at in executable_order(units, position, dependencies(units, reads))]


def fused_groups_of(nodes: Sequence[ir.Node], legal: Collection[ir.Node]) -> list[tuple[ir.Node, ...]]:
    """Return the fused groups among the legal nodes of a graph.

    These are: a product with the elementwise operators on its result alone, such as bias and activation; and an
        operator with the DequantizeLinear before it and the QuantizeLinear after it. The groups of operators are those
        of `ops/onnx.yaml`. Shape arithmetic stays with its users because of the weight of its values (`graph_problem`).

    Args:
        nodes: The nodes of the graph.
        legal: The nodes that may be in regions.
    """
    groups = operator_facts().groups
    found: list[tuple[ir.Node, ...]] = []
    for node in nodes:
        if node not in legal:
            continue
        if _is(node, groups["products"]):
            found.append((node, *_fused_behind(node, legal, groups["fused"])))
        if not _is(node, groups["quantizers"]) and not _is(node, groups["dequantizers"]):
            found.append(_quantized(node, legal, groups["quantizers"], groups["dequantizers"]))
    return [fused_group for fused_group in found if len(fused_group) > 1]


def _is(node: ir.Node, group: Collection[str]) -> bool:
    return node.op_type in group and is_onnx(node)


def _readers(node: ir.Node) -> dict[ir.Node, None]:
    """Return the users of a node in its own graph."""
    return dict.fromkeys(reader for value in node.outputs for reader, _ in value.uses() if reader.graph is node.graph)


def _fused_behind(node: ir.Node, legal: Collection[ir.Node], fused: Collection[str]) -> Iterator[ir.Node]:
    """Yield the chain of nodes after a product whose other inputs are constants."""
    while True:
        readers = list(_readers(node))
        if len(readers) != 1 or node.outputs[0].is_graph_output():
            return
        (reader,) = readers
        others = [value for value in reader.inputs if value is not None and value.producer() is not node]
        if reader not in legal or not _is(reader, fused) or not all(value.is_initializer() for value in others):
            return
        yield reader
        node = reader


def _quantized(
    node: ir.Node, legal: Collection[ir.Node], quantizers: Collection[str], dequantizers: Collection[str]
) -> tuple[ir.Node, ...]:
    producers = dict.fromkeys(value.producer() for value in node.inputs if value is not None)
    before = [p for p in producers if p is not None and p in legal and _is(p, dequantizers)]
    behind = [reader for reader in _readers(node) if reader in legal and _is(reader, quantizers)]
    return (*before, node, *behind)
