"""Facts of nodes that the limits of `tensorrt` use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

__all__ = ["int8_constant", "positive_scale", "symmetric"]

_INT8 = 3  # onnx.TensorProto.INT8
_SCALE, _ZERO_POINT = 1, 2  # inputs of QuantizeLinear and DequantizeLinear


def int8_constant(node: ir.Node) -> bool:
    """Whether `node` reads a constant in int8."""
    return any(
        value is not None and value.const_value is not None and value.dtype is not None and value.dtype.value == _INT8
        for value in node.inputs
    )


def positive_scale(node: ir.Node) -> bool:
    """Whether no scale of a QuantizeLinear or DequantizeLinear is known to be zero or negative.

    The parser refuses such a scale if it is a constant; a computed one is taken.
    """
    scale = _constant(node, _SCALE)
    return scale is None or bool((scale > 0).all())


def symmetric(node: ir.Node) -> bool:
    """Whether a QuantizeLinear or DequantizeLinear has no zero points but constant zeros.

    One without any has zeros, too; a computed one parses, but is not built.
    """
    if len(node.inputs) <= _ZERO_POINT or node.inputs[_ZERO_POINT] is None:
        return True
    zero = _constant(node, _ZERO_POINT)
    return zero is not None and not zero.any()


def _constant(node: ir.Node, index: int) -> np.ndarray | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return None
    if value.const_value is not None:
        return value.const_value.numpy()
    producer = value.producer()
    if producer is None or producer.op_type != "Constant" or "value" not in producer.attributes:
        return None
    return producer.attributes["value"].as_tensor().numpy()
