"""Assignment of conversions between floats and integers to regions.

Partitioners treat conversions like other nodes, and the DequantizeLinear of a weight is ready before everything else.
The region of a conversion follows instead from the node that reads or computes the value, and from the `border` section
of the backend:

- the DequantizeLinear of a weight is in the region that reads the weight;
- with `in: outside`, the DequantizeLinear of a region's input is in that region, so integers cross its border;
- with `out: outside`, the QuantizeLinear of a region's output is in that region;
- with `inside`, both are at the other end of the edge, and floats cross.

A conversion moves to an end of its edge only if its other inputs are computed by then, and if no other backend reads
it earlier; in that case it stays, and the region at that end gets a copy. So regions can still run in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import FlatGraph, FreshNames, is_onnx, name_of, producer_of, reads_of
from dovetail.planning import (
    PART,
    Region,
    decided_key,
    get_placement,
    keep_key,
    origin_of,
    regions_from,
    set_origin,
    set_placement,
)

from dovetail_placement.edge_kinds import operator_facts

if TYPE_CHECKING:
    from dovetail.ir import Model, Reads
    from dovetail.passes import Context


def settled_regions(
    graph: ir.Graph, regions: Sequence[Region], floats_cross: Mapping[str, tuple[bool, bool]]
) -> list[Region]:
    """Return the regions with every conversion assigned to its region; regions left empty are dropped.

    Args:
        graph: The graph.
        regions: All of its regions, in execution order.
        floats_cross: For each backend with quantized formats, whether floats enter and whether floats leave its
            regions.
    """
    if not any(region.backend in floats_cross for region in regions) or not _conversions(graph):
        return list(regions)
    backend_of = {node: region.backend for region in regions for node in region.nodes}
    reads = reads_of(graph)
    homes = _Homes(graph, regions, backend_of, reads, floats_cross)
    if not homes.moved:
        return list(regions)
    groups: list[list[ir.Node]] = [[] for _ in regions]
    for node in graph:
        groups[homes.of[node]].append(node)
    ordered = [_beside_readers(group, homes, reads) for group in groups if group]
    return regions_from(graph, ordered, backend_of.__getitem__, reads)


def copy_conversions(
    model: Model, regions: Sequence[Region], floats_cross: Mapping[str, tuple[bool, bool]], ctx: Context
) -> bool:
    """Give each region its own copy of the conversions that it reads and that belong to their users.

    Returns:
        Whether anything was copied; the regions must then be formed again.
    """
    if not any(region.backend in floats_cross for region in regions) or not _conversions(model.graph):
        return False
    backend_of = {node: region.backend for region in regions for node in region.nodes}
    homes = _Homes(model.graph, regions, backend_of, reads_of(model.graph), floats_cross)
    if not homes.shared:
        return False
    names, flat = ctx.analysis(FreshNames, model), ctx.analysis(FlatGraph, model)
    for node, others in homes.shared.items():
        copies = {home: _copied(node, names) for home in others}
        for home, copy in copies.items():
            model.graph.insert_after(node, copy)
            homes.add(copy, home, node)
        (value,) = node.outputs
        for reader, index in list(value.uses()):
            # A node outside of the flat graph is a copy made here.
            holder = flat.outermost(reader) if reader.graph is not model.graph else reader
            own = copies.get(homes.of[holder])
            if own is not None and homes.reads_there(holder, node, homes.of[holder]):
                reader.replace_input_with(index, own.outputs[0])
    ctx.count("conversions copied", sum(map(len, homes.shared.values())))
    model.touch()
    return True


def _copied(node: ir.Node, names: FreshNames) -> ir.Node:
    """Copy a conversion under fresh names; the copy of a planned node is marked as a part of it."""
    copy = ir.Node(
        node.domain, node.op_type, node.inputs, list(node.attributes.values()), overload=node.overload,
        version=node.version, num_outputs=1, name=names.fresh(node.name or ""),
    )  # fmt: skip
    before, after = node.outputs[0], copy.outputs[0]
    after.name, after.type, after.shape = names.fresh(name_of(before)), before.type, before.shape
    set_placement(copy, get_placement(node))
    set_origin(copy, origin_of(node))
    keep_key(copy, node)
    if decided_key(node):
        copy.metadata_props[PART] = node.name or ""
    return copy


def _beside_readers(group: Sequence[ir.Node], homes: _Homes, reads: Reads) -> list[ir.Node]:
    """Return the nodes of a region in topological order, with user-side conversions right before their first user.

    Cutting a region into runs of this order keeps them together.
    """
    ordered: dict[ir.Node, None] = {}
    own = set(group)

    def place(node: ir.Node) -> None:
        waiting = [node]
        while waiting:
            node = waiting[-1]
            before = [
                producer
                for value in reads[node]
                if (producer := value.producer()) in own and producer in homes.floating and producer not in ordered
            ]
            if before:
                waiting += before
            else:
                ordered[waiting.pop()] = None

    for node in group:
        if node not in homes.floating:
            place(node)
    for node in group:
        ordered.setdefault(node)  # conversions that only other backends read
    return list(ordered)


def _conversions(graph: ir.Graph) -> list[ir.Node]:
    """Return the conversions between floats and integers, on any backend."""
    groups = operator_facts().groups
    operators = {*groups["quantizers"], *groups["dequantizers"]}
    return [node for node in graph if node.op_type in operators and is_onnx(node)]


class _Homes:
    """The region of every node, after conversions are assigned.

    Attributes:
        of: The number of the region of each node.
        floating: The conversions that belong to their users.
        shared: For conversions with users in several regions, all of these regions except the one in `of`.
        moved: Whether any conversion changed its region.
    """

    def __init__(
        self,
        graph: ir.Graph,
        regions: Sequence[Region],
        backend_of: Mapping[ir.Node, str],
        reads: Reads,
        floats_cross: Mapping[str, tuple[bool, bool]],
    ):
        self.of = {node: number for number, region in enumerate(regions) for node in region.nodes}
        self.floating: set[ir.Node] = set()
        self.shared: dict[ir.Node, list[int]] = {}
        self.moved = False
        self._backend_of, self._floats_cross = dict(backend_of), floats_cross
        self._dequantizers = operator_facts().groups["dequantizers"]
        conversions = [node for node in _conversions(graph) if self._backend_of.get(node) in floats_cross]
        wanted = {value for node in conversions for value in node.outputs}
        self._readers: dict[ir.Node, dict[ir.Node, None]] = {node: {} for node in conversions}
        for node in graph if wanted else ():
            for value in reads[node]:
                if value in wanted:
                    self._readers[producer_of(value)][node] = None
        for node in conversions:
            if self._belongs_to_readers(node):
                self.floating.add(node)
            elif (maker := self._maker(node)) is not None and self._computed_by(node, self.of[maker]):
                self._move(node, self.of[maker])
        for node in reversed(conversions):
            if node in self.floating:
                self._follow_readers(node)

    def add(self, copy: ir.Node, home: int, node: ir.Node) -> None:
        """Record the region of a conversion's copy, for the conversions before it that are copied next."""
        self.of[copy], self._backend_of[copy] = home, self._backend_of[node]

    def reads_there(self, reader: ir.Node, node: ir.Node, home: int) -> bool:
        """Check whether a user of a conversion is on the same backend, in that region."""
        return self.of[reader] == home and self._backend_of[reader] == self._backend_of[node]

    def _belongs_to_readers(self, node: ir.Node) -> bool:
        into, out = self._floats_cross[self._backend_of[node]]
        producer = node.inputs[0].producer() if node.inputs[0] is not None else None
        beside = producer is not None and self._backend_of.get(producer) == self._backend_of[node]
        if node.op_type in self._dequantizers:
            return producer is None or not (out and beside) or producer in self.floating
        return into and not beside

    def _maker(self, node: ir.Node) -> ir.Node | None:
        """Return the node on the same backend that computes a conversion's input, skipping floating conversions."""
        while True:
            maker = node.inputs[0].producer() if node.inputs[0] is not None else None
            if maker is None or self._backend_of.get(maker) != self._backend_of[node]:
                return None
            if maker not in self.floating:
                return maker
            node = maker

    def _computed_by(self, node: ir.Node, home: int) -> bool:
        """Check whether the scale and zero point of a conversion are computed in that region or before."""
        makers = [value.producer() for value in node.inputs[1:] if value is not None]
        return all(self.of.get(maker, home) <= home for maker in makers if maker is not None)

    def _follow_readers(self, node: ir.Node) -> None:
        own, found, foreign = self._backend_of[node], set[int](), set[int]()
        for reader in self._readers[node]:
            same = self._backend_of[reader] == own
            (found if same else foreign).update((self.of[reader], *self.shared.get(reader, ())))
        homes = sorted(found)
        if homes and (min(foreign, default=homes[0]) < homes[0] or not self._computed_by(node, homes[0])):
            homes.insert(0, self.of[node])
        if homes:
            self._move(node, homes[0])
        if homes[1:]:
            self.shared[node] = homes[1:]

    def _move(self, node: ir.Node, home: int) -> None:
        self.moved |= self.of[node] != home
        self.of[node] = home
