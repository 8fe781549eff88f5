"""Regions from the partitioners of backends, and their validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

from dovetail.errors import DovetailError
from dovetail.ir import Reads, reads_of
from dovetail.planning import Groups, Region, in_order, regions_from
from dovetail.plugin import Partitioner
from dovetail.plugin.loading import calling, class_of, made, stands_for_region

from dovetail_placement.regions.order import UnitDependencies, dependencies, executable_order

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import Request
    from dovetail.plugin import Backend, RegionView, Registry


_SHOWN = 8  # regions of a cycle that are named


class PlacedNodes(NamedTuple):
    """The view of a partitioner; see `dovetail.plugin.RegionView`."""

    graph: ir.Graph
    backends: tuple[str, ...]
    nodes: Sequence[ir.Node]
    formed: Groups
    reads: Reads
    backend_of: Callable[[ir.Node], str]
    chosen: Mapping[str, Backend]
    request: Request | None


def formed_regions(
    graph: ir.Graph,
    partitioner_of: Mapping[str, str],
    registry: Registry,
    backend_of: Callable[[ir.Node], str],
    chosen: Mapping[str, Backend] = MappingProxyType({}),
    request: Request | None = None,
) -> list[Region]:
    """Partition `graph` into regions: each partitioner handles the nodes of all backends that name it.

    Args:
        graph: The graph, with a backend for every node.
        partitioner_of: Name of the partitioner of every backend; partitioners run in this order.
        registry: The registry with the partitioners.
        backend_of: The backend of a node.
        chosen: The backends, with their options.
        request: The request; None outside of a compilation.

    Raises:
        DovetailError: A partitioner is not installed, fails, or returns no partition of its nodes or regions that
            depend on each other cyclically.
    """
    reads, nodes = reads_of(graph), list(graph)
    position = {node: i for i, node in enumerate(nodes)}
    backends_of = {node: backend_of(node) for node in nodes}
    backend_of = backends_of.__getitem__
    # A node that stands for a region is a region of its own, regardless of its neighbors.
    formed = [[node] for node in nodes if stands_for_region(node)]
    apart = {node for (node,) in formed}
    for name in dict.fromkeys(partitioner_of.values()):
        backends = tuple(backend for backend, partitioner in partitioner_of.items() if partitioner == name)
        own = [node for node in nodes if backend_of(node) in backends and node not in apart]
        if not own:
            continue
        title = registry.partitioner.title(name)
        partitioner = made(registry.partitioner[name], title, Partitioner)
        with calling(title):
            view = PlacedNodes(graph, backends, own, tuple(map(tuple, formed)), reads, backend_of, chosen, request)
            found = partitioner.form(cast("RegionView", view))  # which nobody may set attributes of
            groups = _partition([list(group) for group in found], own, view, position, title)
        formed = _arranged([*formed, *groups], nodes, reads, position, title)
    return regions_from(graph, formed, backend_of, reads)


def keys_of_partitioner(backend: Backend, registry: Registry) -> tuple[str, ...]:
    """Return the keys under `place:` that the partitioner of a backend reads.

    Raises:
        DovetailError: It is not installed, or is no partitioner.
    """
    if not backend.regions:
        return ()
    name = backend.regions
    return class_of(registry.partitioner[name], registry.partitioner.title(name), Partitioner).place_keys


def _partition(
    groups: list[list[ir.Node]], own: Sequence[ir.Node], view: PlacedNodes, position: Mapping[ir.Node, int], title: str
) -> list[list[ir.Node]]:
    """Return the groups with their nodes in graph order, after checking that they partition the given nodes."""
    left = set(own)
    for group in groups:
        if not group:
            raise DovetailError(f"{title} returns an empty region", "every region has nodes")
        for node in group:
            if node not in left:
                raise _misplaced(node, view, position, title)
            left.discard(node)
        names = {view.backend_of(node) for node in group}
        if len(names) > 1:
            raise DovetailError(f"{title} puts nodes of {' and '.join(sorted(names))} into one region", _CONTRACT)
    if left:
        lost = min(left, key=position.__getitem__)
        raise DovetailError(f"{title} puts '{_name(lost)}' into no region", _CONTRACT)
    return [sorted(group, key=position.__getitem__) for group in groups]


def _misplaced(node: ir.Node, view: PlacedNodes, position: Mapping[ir.Node, int], title: str) -> DovetailError:
    if node not in position:
        return DovetailError(f"{title} puts something into a region that is no node of the graph", _CONTRACT)
    if view.backend_of(node) not in view.backends:
        return DovetailError(f"{title} takes '{_name(node)}' of {view.backend_of(node)}", _CONTRACT)
    return DovetailError(f"{title} puts '{_name(node)}' into two regions", _CONTRACT)


def _arranged(
    groups: list[list[ir.Node]], nodes: Sequence[ir.Node], reads: Reads, position: Mapping[ir.Node, int], title: str
) -> list[list[ir.Node]]:
    """Return the groups in an executable order; the given order if it is one.

    Nodes that are in no group yet count as groups of their own.
    """
    held = {node for group in groups for node in group}
    if len(held) == len(nodes) and in_order(groups, reads):
        return groups
    units = [*groups, *([node] for node in nodes if node not in held)]
    needs = dependencies(units, reads)
    order = executable_order(units, position, needs)
    if len(order) < len(units):
        raise _circular(units, needs, set(range(len(units))).difference(order), title)
    return [units[i] for i in order if i < len(groups)]


def _circular(units: list[list[ir.Node]], needs: UnitDependencies, stuck: set[int], title: str) -> DovetailError:
    before: dict[int, set[int]] = {i: set() for i in stuck}
    for producer in stuck:
        for user in stuck.intersection(needs.users[producer]):
            before[user].add(producer)
    trail = [min(stuck)]
    while trail[-1] not in trail[:-1]:
        trail.append(min(before[trail[-1]]))
    cycle = trail[trail.index(trail[-1]) :]
    texts = [_unit(units[i]) for i in cycle[:_SHOWN]]
    more = f", and {len(cycle) - _SHOWN} more" if len(cycle) > _SHOWN else ""
    return DovetailError(
        f"{title} forms regions that cannot run one after the other: {', which waits for '.join(texts)}{more}",
        "a region must be convex: no path may leave it and come back, not by way of other regions either",
    )


def _unit(unit: Sequence[ir.Node]) -> str:
    return f"'{_name(unit[0])}'" if len(unit) == 1 else f"the region from '{_name(unit[0])}' to '{_name(unit[-1])}'"


def _name(node: ir.Node) -> str:
    return node.name or next((value.name for value in node.outputs if value.name), "") or node.op_type


_CONTRACT = "a partitioner returns every node of `view.nodes` in exactly one region, each of one backend"
