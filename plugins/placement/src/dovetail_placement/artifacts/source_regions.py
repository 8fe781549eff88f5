"""Regions of a compiled model, expressed in nodes and values of the source model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import reads_of
from dovetail.planning import PART, Region, decided_key, extract, get_placement

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model, Reads


def source_regions(decided: Model, regions: Sequence[Region]) -> Iterator[tuple[int, Model]]:
    """Yield each region, by its index, with the source model's nodes and values for it.

    Nodes are matched by the key recorded when they were decided on, so renamed values do not matter. A node that a
    region has a copy of, such as shape arithmetic, is in both sources. A node that was merged into another one is in
    the region of its users. Regions of conversions alone have no source and are left out.

    Args:
        decided: The model as it was decided on, before any of it was carried out.
        regions: Regions of the model compiled from it.
    """
    reads = reads_of(decided.graph)
    homes = _homes(decided.graph, regions, reads)
    nodes: dict[int, list[ir.Node]] = {}
    inputs: dict[int, dict[ir.Value, None]] = {}
    leaving: dict[int, dict[ir.Value, None]] = {}
    for node in decided.graph:
        for home in homes.get(node, ()):
            nodes.setdefault(home, []).append(node)
    for node, values in reads.items():
        own = homes.get(node, ())
        for value in values:
            producer = value.producer()
            made = homes.get(producer, ()) if producer is not None else ()
            outside = [home for home in own if home not in made]
            if not value.is_initializer():
                for home in outside:
                    inputs.setdefault(home, {})[value] = None
            if made and (outside or not own):
                leaving.setdefault(made[0], {})[value] = None
    for value in decided.graph.outputs:
        producer = value.producer()
        for home in homes.get(producer, ())[:1] if producer is not None else ():
            leaving.setdefault(home, {})[value] = None
    for region in regions:
        if region.index in nodes:
            held = tuple(nodes[region.index])
            kept = leaving.get(region.index, {})
            outputs = tuple(value for node in held for value in node.outputs if value in kept)
            entering = tuple(inputs.get(region.index, ()))
            yield region.index, extract(decided, Region(region.index, region.backend, held, entering, outputs))


def _homes(graph: ir.Graph, regions: Sequence[Region], reads: Reads) -> dict[ir.Node, list[int]]:
    """Return the regions of each source node: first the one in the plan, then those with copies."""
    by_key: dict[str, dict[int, bool]] = {}
    backend_of = {}
    for region in regions:
        backend_of[region.index] = region.backend
        for node in region.nodes:
            key = decided_key(node)
            if not key:
                continue
            known = by_key.setdefault(key, {})
            # A copy is marked as a part of its original. Nodes split from one node are marked too, but never all of
            # them.
            known[region.index] = known.get(region.index, False) or PART not in node.metadata_props
    ordered = {key: sorted(known, key=known.__getitem__, reverse=True) for key, known in by_key.items()}
    homes = {node: ordered[key] for node in graph if (key := decided_key(node)) in ordered}
    for node in reversed(list(graph)):
        if node not in homes and (found := _merged_into(node, homes, backend_of)):
            homes[node] = found
    return homes


def _merged_into(node: ir.Node, homes: dict[ir.Node, list[int]], backend_of: dict[int, str]) -> list[int]:
    """Return the region of the only users of a removed node, if they are on its backend."""
    placement = get_placement(node)
    if placement is None or any(value.is_graph_output() for value in node.outputs):
        return []
    readers = [reader for value in node.outputs for reader, _ in value.uses()]
    found = dict.fromkeys(home for reader in readers for home in homes.get(reader, (-1,)))
    if len(found) == 1 and backend_of.get(next(iter(found))) == placement.backend:
        return list(found)
    return []
