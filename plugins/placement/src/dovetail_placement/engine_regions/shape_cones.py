"""The `copy-shape-cones` pass: recompute shape arithmetic on both sides of a border instead of passing integers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir
from dovetail.ir import FlatGraph, FreshNames, graph_of, is_onnx, producer_of
from dovetail.passes import Pass
from dovetail.planning import (
    PART,
    Placement,
    get_placement,
    keep_key,
    kind_of,
    origin_of,
    placement_of,
    set_kind,
    set_origin,
    set_placement,
)
from dovetail_onnx.signatures import Signatures, input_name, output_name

from dovetail_placement.edge_kinds import operator_facts
from dovetail_placement.legality import Judges
from dovetail_placement.regions.form_regions import regions_of

if TYPE_CHECKING:
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail.planning import Region

    from dovetail_placement.engine_regions.profitability import Users


_LARGEST = 256
"""Maximum nodes of a cone. Larger cones are not followed, which keeps the pass linear."""


class ShapeCone(NamedTuple):
    """The nodes that compute a value from extents.

    Attributes:
        nodes: The nodes in topological order.
        tensors: The tensors whose extents they read.
        obstacle: Description of an input that is not computed from extents; empty if there is none.
    """

    nodes: tuple[ir.Node, ...]
    tensors: tuple[ir.Value, ...]
    obstacle: str = ""


def shape_cone(
    value: ir.Value, there: Collection[ir.Node], whole: Callable[[ir.Node], Collection[object]]
) -> ShapeCone:
    """Return the cone of a value.

    Args:
        value: The value.
        there: Nodes whose results are available and need no cone.
        whole: Returns a node with all nodes of its bodies.
    """
    sources = operator_facts().groups["extents"]
    nodes: dict[ir.Node, None] = {}
    tensors: dict[ir.Value, None] = {}
    home = value.producer()
    stack: list[tuple[ir.Value, ir.Node | None]] = [(value, None)]
    open_nodes: set[ir.Node] = set()
    while stack:
        part, done = stack.pop()
        if done is not None:
            nodes[done] = None
            continue
        if part.is_initializer():
            continue
        node = part.producer()
        if node in there or node in open_nodes:
            continue
        if node is None:
            return ShapeCone((), (), f"'{part.name}' is an input of the model")
        if kind_of(node) != "shape" or len(whole(node)) > 1 or home is None or node.graph is not home.graph:
            return ShapeCone((), (), f"'{node.name}' ({node.op_type}) computes more than extents")
        if len(open_nodes) == _LARGEST:
            return ShapeCone((), (), f"more than {_LARGEST} nodes compute it")
        open_nodes.add(node)
        stack.append((part, node))
        inputs = [given for given in node.inputs if given is not None]
        if node.op_type in sources and is_onnx(node):
            tensors.update(dict.fromkeys(inputs))
        else:
            stack += [(given, None) for given in reversed(inputs)]
    return ShapeCone(tuple(nodes), tuple(tensors))


def read_outside_alone(
    nodes: Sequence[ir.Node],
    legal: Collection[ir.Node],
    users: Users,
    whole: Callable[[ir.Node], Collection[ir.Node]],
) -> set[ir.Node]:
    """Return the legal nodes that compute integers from extents only for nodes outside.

    Only if the tensors whose extents they read are available outside, or must be in any case; otherwise, passing the
    integers is cheaper.

    Args:
        nodes: The nodes of the graph, in topological order.
        legal: The nodes that may be in regions.
        users: The nodes that use each value.
        whole: Returns a node with all nodes of its bodies.
    """
    found: set[ir.Node] = set()

    def outside(node: ir.Node) -> bool:
        return node not in legal or node in found

    def is_there(tensor: ir.Value) -> bool:
        producer = tensor.producer()
        if producer is None or outside(producer) or tensor.is_graph_output():
            return True
        return any(outside(user) and kind_of(user) != "shape" for user in users.get(tensor, ()))

    for node in reversed(nodes):
        if node not in legal or kind_of(node) != "shape" or any(value.is_graph_output() for value in node.outputs):
            continue
        readers = [user for value in node.outputs for user in users.get(value, ())]
        if readers and all(map(outside, readers)):
            cones = [shape_cone(value, (), whole) for value in node.outputs if value.name]
            if all(not cone.obstacle and all(map(is_there, cone.tensors)) for cone in cones):
                found.add(node)
    return found


_PARTITIONER = "engine-regions"


class CopyShapeCones(Pass):
    """Copy the nodes that compute integers from extents to the side of a border that reads the integers.

    Given:  %s = Shape(%x) on the host, read there and by a Reshape in an engine that reads %x as well
    Result: a second Shape(%x) in the engine, for the Reshape

    Applies to borders of backends with the partitioner `engine-regions`, where the tensors whose extents are read cross
    the border anyway. Otherwise the integers cross, and the builder of an engine must know their values. Integers read
    on one side only are already computed there, by the strategy or the partitioner. A copy is a part of its original,
    and coverage counts both as one.
    """

    name = "copy-shape-cones"
    stage = "join"
    before = ("join",)
    requires = ("assign-types",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Copy shape cones; return whether any node was copied."""
        engines = {backend.name for backend in ctx.backends if backend.regions == _PARTITIONER}
        if not engines or not any(kind_of(node) == "shape" for node in model.graph):
            return False
        copier = _Copier(model, ctx, engines)
        for region in copier.regions:
            for value in region.inputs:
                copier.enter(region, value)
        return copier.changed


class _Copier:
    """Copies the cones of one model to the regions that read them."""

    def __init__(self, model: Model, ctx: Context, engines: set[str]):
        self._ctx, self._engines = ctx, engines
        self._flat = ctx.analysis(FlatGraph, model)
        self._names = ctx.analysis(FreshNames, model)
        self._judges = ctx.analysis(Judges, model)
        self._backends = {backend.name: backend for backend in (*ctx.backends, ctx.host)}
        self.regions = regions_of(model, ctx)
        self.changed = False
        self._home = {node: region for region in self.regions for node in region.nodes}
        self._members = {region.index: set(region.nodes) for region in self.regions}
        self._inputs = {region.index: set(region.inputs) for region in self.regions}
        self._leaving = {value for region in self.regions for value in region.outputs}
        self._signatures = Signatures(model.ir.opset_imports)
        self._copies: dict[tuple[int, ir.Value], ir.Value] = {}

    def enter(self, region: Region, value: ir.Value) -> None:
        """Copy the cone of a value into a region that reads it, if possible."""
        producer = value.producer()
        if producer is None or kind_of(producer) != "shape" or get_placement(producer) is None:
            return
        source = self._home[producer]
        if not self._engines & {region.backend, source.backend}:
            return
        members = self._members[region.index]
        readers = [(user, at) for user, at in value.uses() if self._flat.outermost(user) in members]
        if not readers:
            return
        cone = shape_cone(value, members, self._whole)
        why = cone.obstacle or self._obstacle(region, cone)
        if not why and len(readers) == len(value.uses()) and not value.is_graph_output():
            why = "nothing else reads it, and the plan has it there"
        if why:
            if region.backend in self._engines:
                self._remark_cut(region, value, readers[0][0], why)
            return
        for node in cone.nodes:
            if (region.index, node.outputs[0]) not in self._copies:
                self._copy(node, region)
        copy = self._copies[region.index, value]
        for user, at in readers:
            user.replace_input_with(at, copy)
        self.changed = True
        names = f"'{producer.name}'" if len(cone.nodes) == 1 else f"'{cone.nodes[0].name}' to '{producer.name}'"
        why = f"{names} computed again on {region.backend}, so that '{value.name}' does not cross its border"
        self._ctx.remark("passed", producer, "copied", why, because=(self._flat.outermost(readers[0][0]),))

    def _whole(self, node: ir.Node) -> list[ir.Node]:
        return [node, *self._flat.body_nodes(node)]

    def _obstacle(self, region: Region, cone: ShapeCone) -> str:
        """Return why a cone cannot be in a region; empty if it can."""
        away = next((tensor for tensor in cone.tensors if not self._is_there(tensor, region)), None)
        if away is not None:
            return f"it takes extents of '{away.name}', which is not there"
        judge = self._judges.of(self._backends[region.backend])
        refused = next((node for node in cone.nodes if judge(node).ok is False), None)
        if refused is not None:
            reasons = "; ".join(reason.text for reason in judge(refused).reasons)
            return f"{region.backend} does not take '{refused.name}' ({refused.op_type}): {reasons}"
        return ""

    def _is_there(self, tensor: ir.Value, region: Region) -> bool:
        """Check whether a region has a tensor without another value crossing an engine's border."""
        producer = tensor.producer()
        if tensor.is_initializer() or producer in self._members[region.index] or tensor in self._inputs[region.index]:
            return True
        if region.backend in self._engines:
            return False
        return producer is None or tensor in self._leaving or self._home[producer].backend not in self._engines

    def _copy(self, node: ir.Node, region: Region) -> None:
        inputs = [given and self._copies.get((region.index, given), given) for given in node.inputs]
        name = self._names.fresh(f"{node.name}_copy")
        copy = ir.Node(
            node.domain, node.op_type, inputs, list(node.attributes.values()), overload=node.overload,
            version=node.version, num_outputs=len(node.outputs), name=name,
        )  # fmt: skip
        for before, after in zip(node.outputs, copy.outputs, strict=True):
            after.name = self._names.fresh(f"{before.name}_copy") if before.name else ""
            after.type, after.shape = before.type, before.shape
            set_kind(after, kind_of(before))
            self._copies[region.index, before] = after
        set_kind(copy, kind_of(node))
        set_origin(copy, origin_of(node))
        keep_key(copy, node)
        set_placement(copy, self._placement(node, region))
        copy.metadata_props[PART] = node.name or ""
        graph_of(node).insert_after(node, copy)
        self._ctx.count("copied")

    def _placement(self, node: ir.Node, region: Region) -> Placement:
        """Return the placement of a copy, which reads a tensor in the format that the region has it in."""
        placement = placement_of(node)
        there = (self._format_in(region, given) for given in node.inputs if given is not None)
        found = next((format_ for format_ in there if format_ is not None), None)
        if found is None:
            return replace(placement, backend=region.backend)
        return Placement(region.backend, found)

    def _format_in(self, region: Region, value: ir.Value) -> Format | None:
        """Return the format in which a region computes or reads a tensor; None for other values."""
        producer, members = value.producer(), self._members[region.index]
        if kind_of(value) == "shape":
            return None
        index = value.index()
        if producer is not None and producer in members and index is not None:
            return placement_of(producer).port_format(output_name(index, self._signatures(producer)))
        readers = (
            placement_of(user).port_format(input_name(at, self._signatures(user)))
            for user, at in value.uses()
            if user in members and kind_of(user) != "shape"
        )
        return next((format_ for format_ in readers if format_ is not None), None)

    def _remark_cut(self, region: Region, value: ir.Value, reader: ir.Node, why: str) -> None:
        text = f"'{value.name}', integers that its shapes depend on, comes from outside of the engine: {why}"
        suggest = "profiles of the engine need its smallest, usual and largest values"
        at = self._flat.outermost(reader)
        self._ctx.remark("missed", at, "shape-input", text, because=(producer_of(value),), suggest=suggest)
