"""The graph of a result: nodes with their placements, edges, regions, and the values that cross borders."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import all_nodes, bodies
from dovetail.planning import HOST, Placement, get_placement, origin_of

from dovetail_commands.plan_graph.functions import called

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import CompiledModel


_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}  # what ONNX calls otherwise than NumPy


@dataclass
class DrawnRegion:
    """Nodes of one backend that run together.

    Attributes:
        number: Its number; None for nodes that are in no region.
        backend: Name of its backend.
        nodes: Indices of its nodes.
        operators: Its operators with their counts.
    """

    number: int | None
    backend: str
    nodes: list[int] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value that one region computes and another one reads.

    Attributes:
        value: Name of the value.
        source: Index of the region that computes it.
        target: Index of the region that reads it.
        producer: Index of the node that computes it.
        reader: Index of the first node there that reads it.
        bytes: Its size; None if an extent is unknown.
        type: Its element type and shape: `float32[1,8,8,8]`.
    """

    value: str
    source: int
    target: int
    producer: int
    reader: int
    bytes: int | None
    type: str


@dataclass
class ResultGraph:
    """The nodes of a result in the order of the model; a node precedes the nodes of its bodies.

    Attributes:
        nodes: The nodes.
        placements: The placement of each.
        regions: The regions, in the order of their first nodes.
        region_of: Index of the region of each node.
        edges: Pairs of node indices: producer and reader, each pair once.
        crossings: The values that cross from one region to another, once per reading region.
        index: Index of a node of the main graph by name; the first of several with one name.
        region_index: Index of a region by number and backend.
        makers: By `id` of a value, the index of the node that computes it.
        holders: By node, the index of the node of the main graph whose body or function has it; or None.
        passed: By `id` of a value, the value that a call of a function passes in or out for it.
        reads: By node, what it reads: its inputs, the outputs of its bodies, and what a function returns that it calls.
    """

    nodes: list[ir.Node] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    regions: list[DrawnRegion] = field(default_factory=list)
    region_of: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    crossings: list[Crossing] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    region_index: dict[tuple[int | None, str], int] = field(default_factory=dict)
    makers: dict[int, int] = field(default_factory=dict)
    holders: list[int | None] = field(default_factory=list)
    passed: dict[int, ir.Value] = field(default_factory=dict)
    reads: list[tuple[ir.Value, ...]] = field(default_factory=list)

    @classmethod
    def of(cls, compiled: CompiledModel) -> ResultGraph:
        """Walk the model of a result once."""
        graph = cls()
        calls = called(compiled.model)
        graph.passed = calls.passed
        for node, holder in _walk(compiled, calls.nodes):
            place = get_placement(node)
            held = graph.placements[holder] if holder is not None else None
            if place is None or (place.region is None and held is not None):
                backend, region = (held.backend, held.region) if held else (HOST, None)
                place = Placement(backend, place.precision if place else None, place.ports if place else {}, region)
            number = len(graph.nodes)
            graph._add(node, place)
            graph.holders.append(holder if id(graph.nodes[holder or 0]) not in calls.nodes else None)
            graph.makers.update((id(value), number) for value in node.outputs)
            graph.index.setdefault(node.name or "", number)
        graph._connect()
        return graph

    def _add(self, node: ir.Node, place: Placement) -> None:
        key = (place.region, place.backend)
        region = self.region_index.get(key)
        if region is None:
            region = self.region_index[key] = len(self.regions)
            self.regions.append(DrawnRegion(*key))
        self.regions[region].nodes.append(len(self.nodes))
        self.regions[region].operators[node.op_type] += 1
        self.nodes.append(node)
        self.placements.append(place)
        self.region_of.append(region)
        self.reads.append(self._read_by(node))

    def _read_by(self, node: ir.Node) -> tuple[ir.Value, ...]:
        read = [value for value in node.inputs if value is not None]
        if node.attributes.data:
            read += [value for body in bodies(node) for value in body.outputs]
        if not self.passed:
            return tuple(read)
        read += [self.passed[id(value)] for value in node.outputs if id(value) in self.passed]
        return tuple(map(self.resolved, read))

    def resolved(self, value: ir.Value) -> ir.Value:
        """Return the value that a function's input, or an output of its call, stands for."""
        while (outer := self.passed.get(id(value))) is not None:
            value = outer
        return value

    def _connect(self) -> None:
        """Find the edges and crossings; the values that leave a body are read by the node with the body."""
        crossed: set[tuple[int, int]] = set()
        for number, read in enumerate(self.reads):
            target = self.region_of[number]
            before: set[int] = {number}
            for value in read:
                maker = self.makers.get(id(value))
                if maker is None:
                    continue
                if maker not in before:
                    before.add(maker)
                    self.edges.append((maker, number))
                source = self.region_of[maker]
                if source != target and (id(value), target) not in crossed:
                    crossed.add((id(value), target))
                    size, kind = size_of(value), type_of(value)
                    self.crossings.append(Crossing(value.name or "", source, target, maker, number, size, kind))

    def name(self, number: int) -> str:
        """Return the name of a node, or of its first output."""
        node = self.nodes[number]
        return node.name or next((value.name or "" for value in node.outputs), "") or node.op_type

    def origin(self, number: int) -> list[str]:
        """Return the source nodes that a node replaces; empty if it has its own name."""
        names = origin_of(self.nodes[number])
        return [] if names == (self.nodes[number].name,) else list(names)


def _walk(compiled: CompiledModel, inside: dict[int, list[ir.Node]]) -> Iterator[tuple[ir.Node, int | None]]:
    """Yield every node with the index of the main-graph node that holds it, or None."""
    number = -1
    for node in compiled.model.graph:
        number += 1
        top = number
        yield node, None
        held = [part for body in bodies(node) for part in all_nodes(body)] if node.attributes.data else []
        for part in (*held, *inside.get(id(node), ())):
            number += 1
            yield part, top


def size_of(value: ir.Value, open_first: bool = False) -> int | None:
    """Return the bytes of a value; None if its type or an extent is unknown.

    Args:
        value: The value.
        open_first: Whether a first extent that is open counts as 1.
    """
    if value.dtype is None or value.shape is None:
        return None
    extents = [extent for extent in value.shape.dims if isinstance(extent, int)]
    unknown = len(value.shape.dims) - len(extents)
    if unknown > (open_first and unknown > 0 and not isinstance(value.shape[0], int)):
        return None
    try:
        return (math.prod(extents) * value.dtype.bitwidth + 7) // 8
    except (TypeError, ValueError):  # a type without a width, such as text
        return None


def type_of(value: ir.Value) -> str:
    """Return element type and shape: `float32[N,8]`; `?` for what is unknown."""
    kind = "?" if value.dtype is None else _NAMES.get(value.dtype.name, value.dtype.name.lower())
    extents = "?" if value.shape is None else ",".join(map(_extent, value.shape.dims))
    return f"{kind}[{extents}]"


def _extent(extent: int | ir.SymbolicDim) -> str:
    return str(extent) if isinstance(extent, int) else str(extent.value or "?")
