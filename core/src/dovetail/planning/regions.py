"""Regions: convex sets of nodes of one backend, in an executable order, and the values that cross their borders.

A region is convex if no path leaves and re-enters it, so every region can run as one unit. Control-flow nodes are
atomic: values captured by their bodies count as their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dovetail.errors import DovetailError
from dovetail.ir.graphs import reads_of, used_values
from dovetail.planning.placement import HOST, get_placement

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.ir.graphs import Reads
    from dovetail.planning.quantized_value import Parameters


SLICE = 4096
"""Nodes prepared together if one backend runs all: engine preparation is often superlinear."""

Groups: TypeAlias = "Sequence[Sequence[ir.Node]]"
"""Sets of nodes, each in graph order."""


@dataclass(frozen=True, slots=True)
class BorderValue:
    """A value that crosses the border of a region.

    Attributes:
        name: Its name in the model of the region.
        source: Name of the value of the source model that it holds, perhaps in another format.
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
        """Return the region of some of its nodes, with the inputs that they have in the graph as it is now."""
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


def annotated_regions(graph: ir.Graph) -> list[Region]:
    """Return the regions recorded in a model's placements, in an executable order.

    If a node has no region, or the numbers contradict the graph, as after an edit, return `ready_regions`.
    """
    groups: dict[tuple[int, str], list[ir.Node]] = {}
    for node in graph:
        placement = get_placement(node)
        if placement is None or placement.region is None:
            return ready_regions(graph)
        groups.setdefault((placement.region, placement.backend), []).append(node)
    ordered, reads = [groups[key] for key in sorted(groups)], reads_of(graph)
    return regions_from(graph, ordered, placed_backend, reads) if in_order(ordered, reads) else ready_regions(graph)


def given_regions(graph: ir.Graph, parts: Groups, backend: str = HOST) -> list[Region]:
    """Return regions of one backend, one per group in `parts`; see `regions_from`."""
    return regions_from(graph, parts, lambda _: backend)


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


def in_order(units: Groups, reads: Reads) -> bool:
    """Check whether every unit follows the units that it reads from."""
    home: dict[ir.Node | None, int] = {node: i for i, unit in enumerate(units) for node in unit}
    return all(
        home.get(value.producer(), 0) <= i for i, unit in enumerate(units) for node in unit for value in reads[node]
    )


def slices(graph: ir.Graph, size: int = SLICE) -> list[Region]:
    """Return regions of the backend `host` with `size` nodes each, in graph order, or one if a border is untyped."""
    nodes = list(graph)
    found = given_regions(graph, [nodes[start : start + size] for start in range(0, len(nodes), size)])
    typed = all(value.type is not None for region in found for value in region.inputs)
    return found if typed else given_regions(graph, [nodes])
