"""The kind of every edge: data, indices, or shapes.

Shape arithmetic must never be cast or quantized, and indices are bounded by the extents of tensors. Kinds derive both
from the uses of a value (a shape port, an index port) and from its definition (Shape, and everything computed from
shapes alone).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from dovetail.installed import package_folder
from dovetail.ir import FlatGraph
from dovetail.passes import Pass
from dovetail.planning import set_kind
from dovetail_onnx.signatures import Signatures, input_name, output_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Registry
    from dovetail_schemas import OperatorFacts


_TRIP_NUMBER = "trip_number"


def is_trip_number(value: ir.Value) -> bool:
    """Check whether `value` is the trip number that a Loop gives to its body; false until edge kinds are marked."""
    return _TRIP_NUMBER in value.meta


class EdgeKinds:
    """The kind of every node and value: `ctx.analysis(EdgeKinds, model)`. Two walks, forward and backward."""

    def __init__(self, model: Model, flat: FlatGraph, facts: OperatorFacts):
        self._facts = facts
        self._signatures = Signatures(model.ir.opset_imports)
        self._known_inputs: dict[tuple, str] = {}
        self._known_outputs: dict[tuple, str] = {}
        self._flows_to: dict[int, str] = {}
        self._comes_from: dict[int, str] = {}
        for node in flat.nodes:
            self._forward(node)
        for node in reversed(flat.nodes):
            self._backward(node.outputs)
        for graph in flat.graphs:
            self._backward(_outer_values(graph))

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> EdgeKinds:
        """Analyze the current revision of `model`."""
        return cls(model, ctx.analysis(FlatGraph, model), facts_of(ctx.registry))

    def of_node(self, node: ir.Node) -> str:
        """Return the kind of a node's results: `shape`, `index` or `data`; `data` if its outputs differ."""
        kinds = {self.of_value(value) for value in node.outputs if value.name}
        return kinds.pop() if len(kinds) == 1 else "data"

    def of_value(self, value: ir.Value) -> str:
        """Return the kind of `value`."""
        return self._comes_from.get(id(value)) or self._flows_to.get(id(value), "data")

    def _forward(self, node: ir.Node) -> None:
        if node.op_type == "Loop" and (body := node.attributes.get("body")) is not None:
            inputs = body.as_graph().inputs
            if inputs:
                self._comes_from[id(inputs[0])] = "shape"  # the iteration number is bounded by an extent
        known = self._inherited(node)
        for index, value in enumerate(node.outputs):
            kind = self._output_kind(node, index)
            if kind == "data" and known and _counts(value):
                kind = known
            if kind != "data":
                self._comes_from[id(value)] = kind

    def _output_kind(self, node: ir.Node, index: int) -> str:
        """Return the kind of an output port from the operator facts, cached per operator version."""
        key = (node.op_type, node.domain, node.version, index)
        if key not in self._known_outputs:
            port = output_name(index, self._signatures(node))
            self._known_outputs[key] = _without_state(self._facts.output_kind(node.domain, node.op_type, port))
        return self._known_outputs[key]

    def _input_kind(self, node: ir.Node, index: int) -> str:
        """Return the kind of an input port from the operator facts, cached per operator version."""
        key = (node.op_type, node.domain, node.version, index)
        if key not in self._known_inputs:
            port = input_name(index, self._signatures(node))
            self._known_inputs[key] = _without_state(self._facts.input_kind(node.domain, node.op_type, port))
        return self._known_inputs[key]

    def _inherited(self, node: ir.Node) -> str | None:
        """Return the common kind of all non-constant inputs; None if they have none.

        Arithmetic on extents yields extents. Arithmetic on indices may yield anything, so only data movement propagates
        them.
        """
        kinds = set()
        for value in node.inputs:
            if value is None or value.is_initializer():
                continue
            kinds.add(self._comes_from.get(id(value), "data"))
        if kinds == {"shape"}:
            return "shape"
        if kinds and kinds <= {"shape", "index"} and self._facts.is_in("data-movement", node.domain, node.op_type):
            return "index"
        return None

    def _backward(self, values: Iterable[ir.Value]) -> None:
        """Classify values by their uses; users come later in the order, so they are classified already."""
        for value in values:
            kind = self._by_readers(value)
            if kind != "data":
                self._flows_to[id(value)] = kind

    def _by_readers(self, value: ir.Value) -> str:
        uses, counts, kinds = value.uses(), _counts(value), set()
        if value.is_graph_output() or not uses:
            return "data"
        for reader, index in uses:
            kind = self._input_kind(reader, index)
            if kind == "data" and counts:
                kind = self.of_node(reader)
            if kind == "data":
                return kind
            kinds.add(kind)
        return "shape" if kinds == {"shape"} else "index"


def _without_state(kind: str) -> str:
    """Return the kind of a value: loop state counts as data."""
    return "data" if kind == "state" else kind


def _counts(value: ir.Value) -> bool:
    """Check whether the type of `value` can hold extents or indices; False for unknown types."""
    return value.dtype is not None and _is_count(value.dtype)


@cache
def _is_count(dtype: ir.DataType) -> bool:
    return dtype.is_integer() or dtype.name == "BOOL"


@cache
def operator_facts() -> OperatorFacts:
    """Return the operator facts that all backends share, loaded once."""
    from dovetail_schemas import load_operator_facts

    return load_operator_facts(package_folder("dovetail_schemas") / "ops" / "onnx.yaml")


def facts_of(registry: Registry) -> OperatorFacts:
    """Return the operator facts that all backends share, merged with those of installed operator files."""
    if not len(registry.table("operators")):
        return operator_facts()
    from dovetail_kernels.operator_files.library import library_of

    return operator_facts().joined(library_of(registry).facts)


@dataclass(frozen=True)
class Facts:
    """The operator facts as an analysis, for strategies: `view.analysis(Facts).facts`.

    Attributes:
        facts: The facts.
    """

    facts: OperatorFacts

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Facts:
        """Return the operator facts in the registry."""
        return cls(facts_of(ctx.registry))


class MarkEdgeKinds(Pass):
    """Annotate every node and value with its kind: data, index or shape.

    Given:  %s = Shape(%x)   %n = Gather(%s, 0)   %y = Reshape(%x, %n)
    Result: the first two are marked `shape`, the last `data`.
    """

    name = "edge-kinds"
    stage = "analyze"

    def run(self, model: Model, ctx: Context) -> bool:
        """Annotate; the graph does not change."""
        kinds = ctx.analysis(EdgeKinds)
        flat = ctx.analysis(FlatGraph, model)
        for graph in flat.graphs:
            for value in _outer_values(graph):
                _mark(value, kinds)
        for node in flat.nodes:
            kind = kinds.of_node(node)
            set_kind(node, kind)
            ctx.count(kind)
            if node.op_type == "Loop" and (body := node.attributes.get("body")) is not None:
                for value in body.as_graph().inputs[:1]:
                    value.meta[_TRIP_NUMBER] = True
            for value in node.outputs:
                _mark(value, kinds)
        return False


def _outer_values(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs of a graph, and its constants that may hold counts."""
    return [*graph.inputs, *(value for value in graph.initializers.values() if _counts(value))]


def _mark(value: ir.Value, kinds: EdgeKinds) -> None:
    if (kind := kinds.of_value(value)) != "data":
        set_kind(value, kind)
