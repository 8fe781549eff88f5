"""Facts about nodes for the limits of `tensorrt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import is_onnx

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

__all__ = [
    "condition_given", "extents_from_integers", "int8_constant", "known_kernel", "positive_scale",
    "scales_of_open_axis", "static_extents", "symmetric",
]  # fmt: skip

_INT8 = 3  # onnx.TensorProto.INT8
_SCALE, _ZERO_POINT = 1, 2  # inputs of QuantizeLinear and DequantizeLinear
_EXTENTS = {"Range": (0, 1, 2), "Resize": (2,)}  # float inputs that determine extents
_ARITHMETIC = frozenset({
    "Abs", "Add", "Cast", "Ceil", "Concat", "Constant", "Div", "Floor", "Gather", "Identity", "Max", "Min", "Mul",
    "Neg", "Reshape", "Slice", "Sqrt", "Squeeze", "Sub", "Unsqueeze",
})  # fmt: skip
_LONGEST_WALK = 256  # nodes


def condition_given(node: ir.Node) -> bool:
    """Check whether a Loop has a condition input."""
    return len(node.inputs) > 1 and node.inputs[1] is not None


def extents_from_integers(node: ir.Node) -> bool:
    """Check whether floats that determine the size of a Range or Resize result derive from integers or shapes.

    The parser follows such arithmetic; it does not support extents that depend on the content of float tensors.
    """
    indices = _EXTENTS.get(node.op_type, ())
    waiting = [node.inputs[index] for index in indices if index < len(node.inputs)]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if value is None or id(value) in seen or value.const_value is not None or not _is_float(value):
            continue
        seen.add(id(value))
        producer = value.producer()
        if (
            producer is None
            or producer.op_type not in _ARITHMETIC
            or not is_onnx(producer)
            or len(seen) > _LONGEST_WALK
        ):
            return False
        waiting.extend(producer.inputs)
    return True


def int8_constant(node: ir.Node) -> bool:
    """Check whether `node` reads an int8 constant."""
    return any(
        value is not None and value.const_value is not None and value.dtype is not None and value.dtype.value == _INT8
        for value in node.inputs
    )


def known_kernel(node: ir.Node) -> bool:
    """Check whether a convolution's kernel extents are static, and for a transposed one the number of channels.

    A computed weight may have open extents.
    """
    data, weight = (None if value is None else value.shape for value in node.inputs[:2])
    if weight is None or not all(isinstance(extent, int) for extent in weight[2:]):
        return False
    return node.op_type != "ConvTranspose" or data is None or isinstance(data[1], int)


def positive_scale(node: ir.Node) -> bool:
    """Check that no scale of a QuantizeLinear or DequantizeLinear is a constant that is zero or negative.

    The parser rejects such a constant, but accepts any computed scale.
    """
    scale = _constant(node, _SCALE)
    return scale is None or bool((scale > 0).all())


def scales_of_open_axis(node: ir.Node) -> bool:
    """Check whether a QuantizeLinear or DequantizeLinear is per-channel along an axis of unknown extent."""
    data, scale = (None if value is None else value.shape for value in node.inputs[:2])
    if scale is None or len(scale) != 1:
        return False
    axis = node.attributes.get_int("axis", 1)
    return data is None or not -len(data) <= axis < len(data) or not isinstance(data[axis], int)


def static_extents(node: ir.Node) -> bool:
    """Check whether all extents of the first input are static."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return shape is not None and all(isinstance(extent, int) for extent in shape)


def symmetric(node: ir.Node) -> bool:
    """Check whether a QuantizeLinear or DequantizeLinear has only constant zeros as zero points.

    Omitted zero points are zero, too; computed ones parse, but do not build.
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


def _is_float(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()
