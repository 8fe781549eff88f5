"""The `integer-arithmetic` pass: lower quantized nodes to integer operators, for backends that compute in integers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dovetail.ir import Format, FreshNames, float_format, is_onnx, name_of, producer_of
from dovetail.planning import (
    PART,
    Placement,
    get_placement,
    keep_key,
    origin_of,
    placement_of,
    set_origin,
    set_placement,
)
from dovetail_onnx.signatures import Signatures, input_name, output_name
from dovetail_placement.source_scales import qdq_of

from dovetail_quantize.arithmetic.averages import lower_average_pool, lower_global_average, lower_reduced_sum
from dovetail_quantize.arithmetic.fused_functions import fused_functions, lower_fused
from dovetail_quantize.arithmetic.lowering import LoweredConstants, Lowering, Nodes, NotIntegerError
from dovetail_quantize.arithmetic.moving import lower_arg, lower_comparison, lower_movement, lower_pad, lower_resize
from dovetail_quantize.arithmetic.parts import Parts
from dovetail_quantize.arithmetic.ports import Integers, integers_of
from dovetail_quantize.arithmetic.products import lower_conv, lower_conv_transpose, lower_gemm, lower_matmul
from dovetail_quantize.arithmetic.sums import lower_batch_norm, lower_mul, lower_sum, requantized
from dovetail_quantize.arithmetic.tables import FUNCTIONS, lower_function

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


_MOVEMENT = (
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "GlobalMaxPool", "Identity",
    "Max", "MaxPool", "Min", "ReduceMax", "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "TopK", "Transpose", "Unsqueeze",
)  # fmt: skip
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")

LOWERINGS: dict[str, Callable[[Lowering], list[ir.Value]]] = {
    **dict.fromkeys(FUNCTIONS, lower_function),
    **dict.fromkeys(_MOVEMENT, lower_movement),
    **dict.fromkeys(_COMPARISONS, lower_comparison),
    **dict.fromkeys(("Add", "Sub", "Sum"), lower_sum),
    **dict.fromkeys(("ArgMax", "ArgMin"), lower_arg),
    **dict.fromkeys(("ReduceMean", "ReduceSum"), lower_reduced_sum),
    "BatchNormalization": lower_batch_norm,
    "AveragePool": lower_average_pool,
    "Conv": lower_conv,
    "ConvTranspose": lower_conv_transpose,
    "Gemm": lower_gemm,
    "GlobalAveragePool": lower_global_average,
    "MatMul": lower_matmul,
    "Mul": lower_mul,
    "Pad": lower_pad,
    "Resize": lower_resize,
}
"""Lowerings by operator type of the default domain."""


_SCALES = "dovetail.scales"
_LOWEST = 13  # opset; ReduceSum and Split take axes and splits as inputs, QuantizeLinear has `axis`


def lower_to_integers(model: Model, wanted: Collection[str], ctx: Context) -> bool:
    """Lower the nodes of these backends in the main graph, the only one with quantized nodes.

    Returns:
        Whether anything changed.
    """
    if model.opset < _LOWEST:
        why = f"the model has opset {model.opset}, and integer arithmetic is written in {_LOWEST} or newer"
        ctx.remark("missed", "", "integer-arithmetic", why)
        return False
    rewriting = _Rewriting(model, ctx, wanted)
    for node in list(model.graph):
        placement = get_placement(node)
        if placement is not None and placement.backend in wanted and is_onnx(node):
            rewriting.rewrite(node)
    rewriting.remove_unread()
    if rewriting.count:
        ctx.count("in-integers", rewriting.count)
        model.touch()
    return rewriting.count > 0


class _Rewriting:
    """Rewriter of the nodes of one graph."""

    def __init__(self, model: Model, ctx: Context, wanted: Collection[str]):
        functions = fused_functions(model.graph, wanted)
        self._functions = {function.nodes[-1]: function for function in functions}
        self._inside = {node for function in functions for node in function.nodes[:-1]}
        self._graph, self._ctx, self._version = model.graph, ctx, model.opset
        self._names = ctx.analysis(FreshNames, model)
        self._signatures = Signatures(model.ir.opset_imports)
        self._constants, self._parts = LoweredConstants(model.graph, self._names), Parts()
        self._gone: set[ir.Node] = set()
        self._left: dict[ir.Node, None] = {}
        self._read: dict[ir.Value, None] = {}
        self.count = 0

    def rewrite(self, node: ir.Node) -> None:
        """Lower a node if it is planned in integers and its operator has a definition."""
        if node in self._gone or node in self._inside or node.op_type == "DequantizeLinear":
            return
        if node.op_type == "QuantizeLinear":
            self._requantize(node)
            return
        at, function = Lowering(node), self._functions.get(node)
        if not at.quantized or not _is_planned_in_integers(node):
            return
        at.nodes, at.parts = Nodes(node, self._names, self._version, self._constants), self._parts
        try:
            lower = LOWERINGS.get(node.op_type) if function is None else partial(lower_fused, function=function)
            if lower is None:
                raise NotIntegerError(f"{node.op_type} has no definition in integers")
            made = lower(at)
        except NotIntegerError as error:
            self._parts.forget(at.nodes.made)
            at.nodes.abandon()
            self._ctx.remark("missed", node, "computed-in-floats", f"it computes floats between integers: {error}")
            return
        self._splice(at, made)
        self.count += 1
        for inside in reversed(function.nodes[:-1] if function is not None else ()):
            self._leave(inside)
            self.count += 1

    def _requantize(self, node: ir.Node) -> None:
        """Lower a QuantizeLinear of dequantized integers to a requantization."""
        held, result = integers_of(node.inputs[0]), Lowering(node)
        wanted = _target(node)
        if held is None or wanted is None or held.scale.size > 1 or wanted.scale.size > 1:
            return
        result.nodes = nodes = Nodes(node, self._names, self._version, self._constants)
        value = requantized(nodes, held, wanted)
        if value is held.value:
            value = nodes.make("Identity", [value], wanted.dtype, value)
        self._enter(node, nodes.made)
        self._take_place(node.outputs[0], value, node.outputs[0].name)
        self._stand_for(nodes.made[-1], node)
        self._leave(node)
        self.count += 1

    def _splice(self, at: Lowering, made: Sequence[ir.Value]) -> None:
        """Replace a node, its fused activation and the QuantizeLinear of its results by the new nodes."""
        node = at.node
        self._enter(node, at.nodes.made)
        activation = next((one.activation for one in at.results if one.activation is not None), None)
        for old, result, value in zip(node.outputs, at.results, made, strict=True):
            name = result.value.name
            value.shape = result.value.shape if value.shape is None else value.shape
            if result.quantize is None:
                self._take_place(old, value, name)
                continue
            integers = result.quantize.outputs[0]
            kept = integers.name if integers.is_graph_output() else name
            self._take_place(integers, value, kept)
            self._leave(result.quantize)
            result.value.name = None
        self._note_scales(at, made)
        last = producer_of(made[0])
        if activation is None:
            self._stand_for(last, node)
        else:
            self._stand_for(last, activation)
            first = next((new for new in at.nodes.made if new.op_type.endswith("Integer")), at.nodes.made[0])
            if first is not last:
                self._stand_for(first, node)
            self._leave(activation)
        self._leave(node)

    @staticmethod
    def _note_scales(at: Lowering, made: Sequence[ir.Value]) -> None:
        """Record the scales of integer results in the node's metadata, so that `verify` can compare with floats."""
        scales: dict[ir.Node, dict[str, list[float]]] = {}
        for value, result in zip(made, at.results, strict=True):
            if result.held is not None:
                scales.setdefault(producer_of(value), {})[name_of(value)] = list(result.held.one_scale())
        for node, noted in scales.items():
            node.metadata_props[_SCALES] = json.dumps(noted)

    def _stand_for(self, new: ir.Node, node: ir.Node) -> None:
        """Copy name, metadata, origin and placement of a replaced node to the new node."""
        new.name = node.name
        for key, text in node.metadata_props.items():
            new.metadata_props.setdefault(key, text)
        new.metadata_props.pop(PART, None)
        set_origin(new, origin_of(node))
        keep_key(new, node)
        planned = placement_of(node)
        floats = Format.of(planned.precision.computes_in) if planned.precision is not None else None
        ports = {}
        for name_at, values in ((input_name, new.inputs), (output_name, new.outputs)):
            for index, value in enumerate(values):
                present = float_format(value) if value is not None else None
                if present is not None and present is not floats:
                    ports[name_at(index, self._signatures(new))] = present
        set_placement(new, Placement(planned.backend, planned.precision, ports, planned.region))

    def _enter(self, node: ir.Node, made: Sequence[ir.Node]) -> None:
        placement, origin = placement_of(node), origin_of(node)
        about = node.name or node.op_type
        for new in made:
            new.meta.update(node.meta)
            new.metadata_props[PART] = about
            # Intermediate floats are float64, a format that no plan contains.
            values = (value for value in (*new.outputs, *new.inputs) if value is not None)
            kinds = [found for value in values if (found := float_format(value))]
            ports = {"input": kinds[1]} if new.op_type == "Cast" and len(kinds) > 1 and kinds[1] is not kinds[0] else {}
            set_placement(new, Placement(placement.backend, kinds[0] if kinds else None, ports, placement.region))
            set_origin(new, origin)
            new.name = self._names.fresh(f"{about}_{new.op_type}")
            for value in new.outputs:
                value.name = self._names.fresh(f"{new.name}_out")
        self._graph.insert_before(node, made)

    def _take_place(self, old: ir.Value, new: ir.Value, name: str | None) -> None:
        graph = self._graph
        if old.is_graph_output():
            for index, output in enumerate(graph.outputs):
                if output is old:
                    graph.outputs[index] = new
        old.replace_all_uses_with(new)
        old.name = None
        new.name = name

    def _leave(self, node: ir.Node) -> None:
        """Remove a node, and remember its conversions and constants, which may now be unused."""
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and producer.op_type == "DequantizeLinear":
                self._left[producer] = None
            elif value is not None and value.is_initializer():
                self._read[value] = None
        self._gone.add(node)
        self._graph.remove(node, safe=True)

    def remove_unread(self) -> None:
        """Remove the conversions and constants that have no uses left."""
        for node in self._left:
            if not node.outputs[0].uses() and not node.outputs[0].is_graph_output() and node not in self._gone:
                self._read.update(dict.fromkeys(value for value in node.inputs if value is not None))
                self._graph.remove(node, safe=True)
        for value in self._read:
            if value.is_initializer() and not value.uses() and not value.is_graph_output():
                self._graph.initializers.pop(name_of(value), None)


def _is_planned_in_integers(node: ir.Node) -> bool:
    """Check whether any port of a node has a quantized format; the plan computes the other nodes in floats."""
    placement = placement_of(node)
    formats = (placement.precision, *placement.ports.values())
    return any(format_ is not None and format_.quantized for format_ in formats)


def _target(node: ir.Node) -> Integers | None:
    qdq = qdq_of(node)
    return Integers.of(qdq) if qdq is not None else None
