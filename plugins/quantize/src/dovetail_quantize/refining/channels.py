"""Channels on their way from one layer to the next: which axis holds them, through operators that keep them apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir.required import input_of, shape_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.refining.layers import Layer


_KEPT = ("Relu", "LeakyRelu", "PRelu", "Identity", "Dropout")
_POOLED = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "LpPool", "GlobalLpPool")
_RESHAPED = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_RESIZED = ("Pad", "Resize")


class Channels(NamedTuple):
    """Where channels are in a value.

    Attributes:
        axis: The axis, counted from the first.
        repeat: How many elements along it belong to one channel, one after the other.
    """

    axis: int
    repeat: int = 1

    def behind(self, node: ir.Node) -> Channels | None:
        """Where they are in what a node computes of its first input.

        None if scaling a channel of the input with a positive factor does not scale it in the result.
        """
        before, after = input_of(node, 0).shape, node.outputs[0].shape
        if node.domain not in ("", "ai.onnx") or before is None or after is None:
            return None
        if node.op_type in _KEPT or node.op_type in _POOLED and self.axis == 1 or _is_relu(node):
            return self
        if node.op_type == "Transpose":
            order = node.attributes.get_ints("perm", list(range(len(before)))[::-1])
            return Channels(list(order).index(self.axis), self.repeat)
        if node.op_type in _RESHAPED:
            return self._reshaped(before, after)
        if node.op_type in _RESIZED and len(before) == len(after) and _pads_zeros(node):
            known = isinstance(before[self.axis], int) and before[self.axis] == after[self.axis]
            return self if known else None
        return None

    def _reshaped(self, before: ir.Shape, after: ir.Shape) -> Channels | None:
        if self.axis != 1 or len(after) < 2 or before[0] != after[0] or not isinstance(after[1], int):
            return None
        if after[1] == before[1]:
            return self
        inner = [extent for extent in before[2:] if isinstance(extent, int)]
        if len(after) == 2 and isinstance(before[1], int) and len(inner) == len(before) - 2:
            return Channels(1, self.repeat * math.prod(inner))
        return None


class Pair(NamedTuple):
    """Two layers of which the second alone reads what the first computes, channel by channel.

    Attributes:
        first: The first.
        second: The second.
        repeat: How many input channels of the second belong to each output channel of the first.
    """

    first: Layer
    second: Layer
    repeat: int


def pair_from(layer: Layer, layers: dict[int, Layer]) -> Pair | None:
    """The pair that a layer begins, if there is one.

    Args:
        layer: The first layer.
        layers: All layers that may end a pair, by the `id` of their node.
    """
    value, rank = layer.output, layer.output.shape
    if layer.added_to is not None:
        value = layer.added_to.outputs[0]
    elif layer.node.op_type == "MatMul" and _adds(layer.output):
        return None
    if rank is None:
        return None
    channels: Channels | None = Channels(1 if layer.is_convolution else len(rank) - 1)
    while channels is not None:
        reader = only_reader(value)
        if reader is None:
            return None
        second = layers.get(id(reader))
        if second is not None and reader.inputs[0] is value:
            axis = 1 if second.is_convolution else len(shape_of(value)) - 1
            groups, _, inputs = second.layout.extents
            fits = channels.axis == axis and groups * inputs == layer.channels * channels.repeat
            return Pair(layer, second, channels.repeat) if fits else None
        if reader.inputs[0] is not value or any(output.uses() for output in reader.outputs[1:]):
            return None
        channels, value = channels.behind(reader), reader.outputs[0]
    return None


def only_reader(value: ir.Value) -> ir.Node | None:
    """The one node that reads a value, once; None if there are others, or if the model gives the value away."""
    uses = value.uses()
    producer = value.producer()
    if producer is None or len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    return node if node.graph is producer.graph else None


def _adds(value: ir.Value) -> bool:
    reader = only_reader(value)
    return reader is not None and reader.op_type == "Add"


def _is_relu(node: ir.Node) -> bool:
    """Whether a node is a Clip from zero to infinity."""
    if node.op_type != "Clip" or len(node.inputs) < 2 or any(value is not None for value in node.inputs[2:]):
        return False
    return _is_zero(node.inputs[1])


def _pads_zeros(node: ir.Node) -> bool:
    """Whether what a node pads with, if it pads, may be scaled."""
    if node.op_type != "Pad" or node.attributes.get_string("mode", "constant") != "constant":
        return node.op_type != "Resize" or node.attributes.get_float("extrapolation_value", 0.0) == 0.0
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return node.attributes.get_float("value", 0.0) == 0.0 and (value is None or _is_zero(value))


def _is_zero(value: ir.Value | None) -> bool:
    tensor = value.const_value if value is not None and value.is_initializer() else None
    return tensor is not None and tensor.size == 1 and float(tensor.numpy().reshape(())) == 0.0
