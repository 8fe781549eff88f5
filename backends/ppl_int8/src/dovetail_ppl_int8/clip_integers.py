"""The `clip-integers` pass: move activations to integers, so that ONNX Runtime uses integer kernels around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, dtype_of, input_of, insert_after_value, is_onnx, name_of, producer_of
from dovetail.passes import Pass
from dovetail.planning import get_placement, keep_key, origin_of, set_origin, set_placement

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


_ACTIVATIONS = ("Clip", "Relu")
_CLIP_TAKES_INTEGERS = 12  # opset


class ClipIntegers(Pass):
    """Compute Relu and Clip of `ppl-int8` on integers.

    Given:  %a = Conv(...)   %r = Relu(%a)   %q = QuantizeLinear(%r, %scale, 128)
    Result: %a = Conv(...)   %b = QuantizeLinear(%a, %scale, 128)   %q = Clip(%b, 128)

    The integers are the same, because rounding is monotonic. PPL's kernels fuse clipping, and ONNX Runtime only has
    integer kernels for nodes directly followed by a QuantizeLinear: with the activation in between, it would compute
    the convolution in floats.

    An input that is already quantized must have the scale of the result.
    """

    name = "clip-integers"
    stage = "quantize"
    for_backend = "ppl-int8"
    requires = ("quantize",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Replace the activations of the main graph, the only one with quantized nodes."""
        if model.opset < _CLIP_TAKES_INTEGERS:
            return False
        found = [node for node in self.own_nodes(model) if node.op_type in _ACTIVATIONS and is_onnx(node)]
        if not found:
            return False
        clips = _Clips(model, ctx)
        for node in found:
            clips.replace(node)
        clips.remove_unread()
        if clips.made:
            ctx.count("clipped", clips.made)
            model.touch()
        return clips.made > 0


class _Clips:
    """Replaces the activations of one model."""

    def __init__(self, model: Model, ctx: Context):
        self._graph, self._ctx = model.graph, ctx
        self._names = ctx.analysis(FreshNames, model)
        self._bounds: dict[tuple[int, str], ir.Value] = {}
        self._widely_read: set[ir.Value] = set()
        self._left: dict[ir.Node, None] = {}
        self.made = 0

    def replace(self, node: ir.Node) -> None:
        """Replace an activation if its result is read in a single quantized form only."""
        result = node.outputs[0]
        readers = [reader for reader, _ in result.uses()]
        if len(readers) != 1 or readers[0].op_type != "QuantizeLinear" or result.is_graph_output():
            return
        (quantize,) = readers
        bounds = _quantized_bounds(node, quantize)
        integers = None if bounds is None else self._input_of(node, quantize)
        if bounds is None or integers is None:
            return
        self._insert(node, quantize, integers, bounds)
        self._ctx.remark("passed", node, "clipped-in-integers", "it is computed on integers: both sides have one scale")
        self.made += 1

    def _input_of(self, node: ir.Node, quantize: ir.Node) -> ir.Value | None:
        """Return an activation's input as integers of the result's format; None if that is not possible."""
        value = input_of(node, 0)
        producer = value.producer()
        if producer is not None and producer.op_type == "DequantizeLinear":
            return producer.inputs[0] if _same_parameters(producer, quantize) else None
        if producer is None or value.is_graph_output() or value in self._widely_read:
            return None
        if len(value.uses()) > 1:  # counting uses takes time, so each value is checked once
            self._widely_read.add(value)
            return None
        name = self._names.fresh(name_of(quantize))
        moved = ir.node("QuantizeLinear", [value, *quantize.inputs[1:]], quantize.attributes, name=name)
        self._describe(moved, quantize)
        insert_after_value(self._graph, value, moved)
        return moved.outputs[0]

    def _insert(self, node: ir.Node, quantize: ir.Node, integers: ir.Value, bounds: tuple[int | None, ...]) -> None:
        held = [None if bound is None else self._bound(bound, dtype_of(integers)) for bound in bounds]
        clip = ir.node("Clip", [integers, *held], name=node.name)
        self._describe(clip, quantize)
        set_placement(clip, get_placement(node))
        set_origin(clip, origin_of(node))
        keep_key(clip, node)
        self._graph.insert_after(quantize, clip)
        quantize.outputs[0].replace_all_uses_with(clip.outputs[0])
        source, result = producer_of(input_of(node, 0)), node.outputs[0]
        self._graph.remove([quantize, node], safe=True)
        # Refusals identify a node by the name of its result.
        clip.outputs[0].name, result.name = result.name, None
        self._left[source] = None

    def remove_unread(self) -> None:
        """Remove unused DequantizeLinear nodes; done last, because one may have many readers."""
        unread = (node for node in self._left if node.op_type == "DequantizeLinear" and not node.outputs[0].uses())
        self._graph.remove(list(unread), safe=True)

    def _describe(self, made: ir.Node, quantize: ir.Node) -> None:
        """Give an integer node the type, shape and placement of `quantize`."""
        result = quantize.outputs[0]
        made.outputs[0].name = self._names.fresh(name_of(result))
        made.outputs[0].type, made.outputs[0].shape = result.type, result.shape
        set_placement(made, get_placement(quantize))

    def _bound(self, number: int, dtype: ir.DataType) -> ir.Value:
        """Return an initializer with one integer, shared by all nodes with that bound."""
        key = (number, dtype.name)
        if key not in self._bounds:
            tensor = ir.Tensor(np.array(number, dtype.numpy()))
            name = self._names.fresh(f"clip_at_{number}")
            value = ir.Value(name=name, type=ir.TensorType(dtype), shape=tensor.shape, const_value=tensor)
            self._graph.register_initializer(value)
            self._bounds[key] = value
        return self._bounds[key]


def _quantized_bounds(node: ir.Node, quantize: ir.Node) -> tuple[int | None, ...] | None:
    """Return the bounds of an activation as integers, rounded like QuantizeLinear; None if unknown."""
    scale, zero_point = (_constant(input_of(quantize, index)) for index in (1, 2))
    if scale is None or zero_point is None or scale.size > 1:
        return None
    if node.op_type == "Relu":
        return (int(zero_point),)
    found: list[int | None] = []
    for value in node.inputs[1:]:
        bound = None if value is None else _constant(value)
        if value is not None and bound is None:
            return None
        found.append(None if bound is None else _quantized(bound, scale, zero_point))
    return tuple(found)


def _quantized(number: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> int:
    limits = np.iinfo(zero_point.dtype)
    quotient = float(np.rint(np.float32(number.item()) / np.float32(scale.item())))
    return int(np.clip(quotient + zero_point.item(), limits.min, limits.max))


def _same_parameters(first: ir.Node, second: ir.Node) -> bool:
    pairs = zip(first.inputs[1:3], second.inputs[1:3])
    return all(one is other or one is not None and other is not None and _same(one, other) for one, other in pairs)


def _same(first: ir.Value, second: ir.Value) -> bool:
    one, other = _constant(first), _constant(second)
    return one is not None and other is not None and np.array_equal(one, other)


def _constant(value: ir.Value) -> np.ndarray | None:
    return None if value.const_value is None or value.is_graph_input() else value.const_value.numpy()
