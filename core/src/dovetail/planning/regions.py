"""Regions: convex sets of nodes of one backend, in an executable order, and the values that cross their borders.

A region is convex if no path leaves and re-enters it, so every region can run as one unit. Control-flow nodes are
atomic: values captured by their bodies count as their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dovetail.ir.graphs import reads_of, used_values
from dovetail.planning.placement import HOST, get_placement

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.ir.graphs import Reads
    from dovetail.planning.quantized_value import Parameters


Groups: TypeAlias = "Sequence[Sequence[ir.Node]]"
"""Sets of nodes, each in graph order."""


@dataclass(frozen=True, slots=True)
class BorderValue:
    """A value that crosses the border of a region.

    Attributes:
        name: Its name in the model of the region.
        source: Name of the value of the source model that it represents, possibly in another format.
        format: The format that it has there; None for a value of another kind, such as an index.
        parameters: Scale and zero point of a quantized format.
    """

    name: str
    source: str
    format: Format | None = None
    parameters: Parameters | None = None


@dataclass(frozen=True, eq=False)
class Region:
    """One unit of execution.

    Attributes:
        index: Its position in the execution order.
        backend: Name of the backend of all its nodes.
        nodes: In topological order; nodes of bodies belong to their control-flow node.
        inputs: Values from outside, except for constants (initializers).
        outputs: Values that later regions or the model's outputs use.
    """

    index: int
    backend: str
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]

    @property
    def constants(self) -> tuple[ir.Value, ...]:
        """The initializers that its nodes use."""
        used = (value for node in self.nodes for value in used_values(node))
        return tuple(dict.fromkeys(value for value in used if value.is_initializer()))

    def part(self, nodes: Sequence[ir.Node]) -> Region:
        """Return the region formed by some of its nodes, with inputs recomputed from the current graph."""
        inside = set(nodes)
        read = dict.fromkeys(value for node in nodes for value in used_values(node) if not value.is_initializer())
        inputs = tuple(value for value in read if value.producer() not in inside)
        leaving = {*self.outputs, *(value for node in self.nodes if node not in inside for value in used_values(node))}
        outputs = tuple(value for node in nodes for value in node.outputs if value in leaving)
        return Region(self.index, self.backend, tuple(nodes), inputs, outputs)


def placed_backend(node: ir.Node) -> str:
    """Return the backend of a node's placement; `host` for an unplaced node."""
    placement = get_placement(node)
    return placement.backend if placement else HOST


def regions_from(
    graph: ir.Graph, groups: Groups, backend_of: Callable[[ir.Node], str], reads: Reads | None = None
) -> list[Region]:
    """Return the regions made of `groups`: all nodes of `graph`, in topological order of the groups."""
    reads = reads_of(graph) if reads is None else reads
    home = {output: g for g, group in enumerate(groups) for node in group for output in node.outputs}
    inputs: list[dict[ir.Value, None]] = [{} for _ in groups]
    leaving = {value for value in graph.outputs if value in home}
    for g, group in enumerate(groups):
        for value in (value for node in group for value in reads[node]):
            if home.get(value) != g and not value.is_initializer():
                inputs[g][value] = None
                leaving.add(value)
    regions = []
    for g, group in enumerate(groups):
        outputs = tuple(output for node in group for output in node.outputs if output in leaving)
        regions.append(Region(g, backend_of(group[0]), tuple(group), tuple(inputs[g]), outputs))
    return regions


def numbered_regions(graph: ir.Graph) -> list[Region] | None:
    """Return the regions recorded in a model's placements, in an executable order.

    None if a node has no number, or if the numbers no longer fit the graph, for example after an edit.
    """
    groups: dict[tuple[int, str], list[ir.Node]] = {}
    for node in graph:
        placement = get_placement(node)
        if placement is None or placement.region is None:
            return None
        groups.setdefault((placement.region, placement.backend), []).append(node)
    ordered, reads = [groups[key] for key in sorted(groups)], reads_of(graph)
    return regions_from(graph, ordered, placed_backend, reads) if in_order(ordered, reads) else None


def given_regions(graph: ir.Graph, parts: Groups, backend: str = HOST) -> list[Region]:
    """Return regions of one backend, one per group in `parts`; see `regions_from`."""
    return regions_from(graph, parts, lambda _: backend)


def in_order(units: Groups, reads: Reads) -> bool:
    """Check whether every unit follows the units that it reads from."""
    home: dict[ir.Node | None, int] = {node: i for i, unit in enumerate(units) for node in unit}
    return all(
        home.get(value.producer(), 0) <= i for i, unit in enumerate(units) for node in unit for value in reads[node]
    )
