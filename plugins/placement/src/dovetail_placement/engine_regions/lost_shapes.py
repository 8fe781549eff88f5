"""Detection of values with unknown rank at the border of a region, for which no engine can be built."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir
from dovetail.ir import bodies, shape_of
from dovetail_transforms.rewriting.node_inference import infer_outputs

from dovetail_placement.engine_regions.shape_cones import shape_cone

if TYPE_CHECKING:
    from dovetail.ir import Reads


class LostShape(NamedTuple):
    """A node that reads a value of unknown rank.

    Attributes:
        node: The node.
        value: The value.
        culprit: The node whose inputs have a rank and whose result has none; None for an input of the model.
        suggest: A way out, or empty.
    """

    node: ir.Node
    value: ir.Value
    culprit: ir.Node | None
    suggest: str


class LostShapes:
    """Finds users of values of unknown rank, and the node that lost the shape; results are cached per value.

    Args:
        reads: The values that each node uses.
    """

    def __init__(self, reads: Reads):
        self._reads = reads
        self._sources: dict[ir.Value, ir.Value] = {}
        self._fixes: dict[ir.Value, str] = {}

    def on_the_way(
        self, nodes: Sequence[ir.Node], legal: Collection[ir.Node], kept: Collection[ir.Node]
    ) -> list[LostShape]:
        """Return legal nodes that read such a value from outside, and those that do once these are outside, too.

        Args:
            nodes: The nodes of the graph, in topological order.
            legal: The nodes that may be in regions.
            kept: The nodes that stay there in any case.
        """
        found, gone = [], set()
        for node in nodes:
            if node not in legal or node in kept:
                continue
            for value in self._reads[node]:
                producer = value.producer()
                if not _has_rank(value) and (producer is None or producer not in legal or producer in gone):
                    found.append(self._lost(node, value))
                    gone.add(node)
                    break
        return found

    def between(self, region: Collection[ir.Node]) -> list[LostShape]:
        """Return the nodes of a region that read such a value from another region."""
        members = set(region)
        return [
            self._lost(node, value)
            for node in region
            for value in self._reads[node]
            if not _has_rank(value) and value.producer() not in members
        ]

    def _lost(self, node: ir.Node, value: ir.Value) -> LostShape:
        source = self._source(value)
        if source not in self._fixes:
            culprit = source.producer()
            self._fixes[source] = _fix_of_input(source) if culprit is None else _fix_of_extents(culprit)
        return LostShape(node, value, source.producer(), self._fixes[source])

    def _source(self, value: ir.Value) -> ir.Value:
        """Return the first value of unknown rank on the way to this one."""
        trail = []
        while value not in self._sources:
            trail.append(value)
            producer = value.producer()
            inputs = producer.inputs if producer is not None else ()
            unknown = next((given for given in inputs if given is not None and not _has_rank(given)), None)
            if unknown is None:
                self._sources[value] = value
                break
            value = unknown
        source = self._sources[value]
        self._sources.update(dict.fromkeys(trail, source))
        return source


def _has_rank(value: ir.Value) -> bool:
    """Check whether the rank of a value is known; sequences and the like have no rank to know."""
    return value.shape is not None or value.type is not None and not isinstance(value.type, ir.TensorType)


def _fix_of_input(value: ir.Value) -> str:
    return f"--fix-shape {shlex.quote(f'{value.name}:1x3x224x224')}, for example" if value.is_graph_input() else ""


def _fix_of_extents(culprit: ir.Node) -> str:
    """Suggest fixing input shapes, if the rank then follows from extents or from integers computed from them."""
    inputs = culprit.graph.inputs if culprit.graph is not None else ()
    open_inputs = [value for value in inputs if value.shape is not None and not value.shape.is_static()]
    enough = [value for value in open_inputs if _has_rank_if_fixed(culprit, [value])]
    if not enough and (_takes_extents(culprit) or _has_rank_if_fixed(culprit, open_inputs)):
        enough = open_inputs
    if not enough:
        return ""
    chosen = enough[0]
    shape = "x".join(str(extent) if isinstance(extent, int) else "1" for extent in shape_of(chosen))
    words = shlex.join(["--fix-shape", f"{chosen.name}:{shape}"])
    return f"{words}, for example: its shape follows from the extents of inputs"


def _takes_extents(node: ir.Node) -> bool:
    """Check whether a node reads integers that follow from extents alone."""
    cones = (
        shape_cone(value, (), lambda part: [part, *bodies(part)])
        for value in node.inputs
        if value is not None and value.producer() is not None
    )
    return any(cone.nodes and not cone.obstacle for cone in cones)


def _has_rank_if_fixed(node: ir.Node, open_inputs: Sequence[ir.Value]) -> bool:
    """Check whether the rank of the result would be known if the extents of the model's inputs were."""
    extents = (extent for value in open_inputs for extent in shape_of(value))
    names = {str(extent) for extent in extents if not isinstance(extent, int)} - {"None"}

    def fixed(value: ir.Value | None) -> ir.Value | None:
        if value is None or value.is_initializer() or value.shape is None:
            return value
        given = value in open_inputs
        extents = [1 if not isinstance(e, int) and (given or str(e) in names) else e for e in value.shape]
        return ir.Value(type=value.type, shape=ir.Shape(extents))

    if bodies(node):
        return False
    attributes = list(node.attributes.values())
    alone = ir.Node(
        node.domain, node.op_type, [*map(fixed, node.inputs)], attributes, num_outputs=len(node.outputs),
        version=node.version,
    )  # fmt: skip
    version = node.version or (node.graph.opset_imports.get(node.domain, 1) if node.graph is not None else 1)
    infer_outputs(alone, version)
    found = all(value.shape is not None for value in alone.outputs)
    for at in range(len(alone.inputs)):
        alone.replace_input_with(at, None)  # detach it from the users of its constants
    return found
