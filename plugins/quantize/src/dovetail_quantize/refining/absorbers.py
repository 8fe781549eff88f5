"""Constants that take up the scaling of a value's channels, on the way back from its readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import constant_of, input_of, is_onnx

from dovetail_quantize.refining.equalize import only_reader
from dovetail_quantize.refining.layers import Layer, is_own, layer_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_quantize.refining.layers import ConstantReplacer

_KEPT = ("Relu", "LeakyRelu", "Identity", "Dropout")
_NORMS = ("LayerNormalization", "RMSNormalization")


@dataclass
class Absorber:
    """Constants and layers that absorb the scaling of a value.

    Attributes:
        vectors: Per-channel constants to multiply by the factors.
        inverse: Per-channel constants to divide by the factors.
        layers: Layers whose output channels to multiply by the factors.
    """

    vectors: list[ir.Value] = field(default_factory=list)
    inverse: list[ir.Value] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)

    def scale(self, constants: ConstantReplacer, factors: np.ndarray) -> None:
        """Multiply the channels of the value by factors."""
        for value in self.vectors:
            constants.scale_vector(value, factors)
        for value in self.inverse:
            constants.scale_vector(value, 1 / factors)
        for layer in self.layers:
            constants.scale(layer, factors, None)


def absorber_of(value: ir.Value, channels: int) -> Absorber | None:
    """Find constants that can absorb a scaling of a value's last axis; None if a producer does not commute with it.

    Every value on the way back must have a single reader, except `value` itself.
    """
    found = Absorber()
    while (node := value.producer()) is not None and is_onnx(node) and value is node.outputs[0]:
        if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
            return None
        if node.op_type in _NORMS:
            return found if _normalized(node, channels, found) else None
        layer = layer_of(node)
        if layer is not None and not layer.is_convolution and layer.channels == channels:
            # The walk has already passed a bias that a separate Add adds.
            found.layers.append(layer if layer.added_to is None else Layer(node, layer.layout))
            return found
        own = [index for index, given in enumerate(node.inputs[:2]) if _per_channel(given, channels)]
        if node.op_type in ("Mul", "Div") and own and (node.op_type == "Mul" or own == [1]):
            (found.vectors if node.op_type == "Mul" else found.inverse).append(input_of(node, own[0]))
            return found
        if node.op_type in ("Add", "Sub") and len(own) == 1:
            found.vectors.append(input_of(node, own[0]))
            value = input_of(node, 1 - own[0])
        elif node.op_type in _KEPT or _keeps_last_axis(node, channels):
            value = input_of(node, 0)
        else:
            return None
        if only_reader(value) is not node:
            return None
    return None


def _normalized(node: ir.Node, channels: int, found: Absorber) -> bool:
    """Check whether a normalization is along the last axis with per-channel constants, and collect these."""
    axis, rank = node.attributes.get_int("axis", -1), len(input_of(node, 0).shape or ())
    given = [value for value in node.inputs[1:3] if value is not None]
    if axis not in (-1, rank - 1) or not given or not all(_per_channel(value, channels) for value in given):
        return False
    found.vectors.extend(given)
    return True


def _per_channel(value: ir.Value | None, channels: int) -> bool:
    """Check whether a value is a per-channel constant along the last axis."""
    if not is_own(value):
        return False
    tensor = constant_of(value)
    return tensor.size == channels and tuple(tensor.shape)[-1:] == (channels,)


def _keeps_last_axis(node: ir.Node, channels: int) -> bool:
    """Check whether a node moves data but keeps the last axis."""
    before, after = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None, node.outputs[0].shape
    if before is None or after is None or not len(before) or not len(after):
        return False
    if node.op_type == "Reshape":
        return before[-1] == after[-1] == channels
    order = node.attributes.get_ints("perm", list(range(len(before)))[::-1])
    return node.op_type == "Transpose" and order[-1] == len(before) - 1
