"""Conversions between floats and integers: QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import Format
from dovetail.planning import Step

from dovetail_quantize.integers import scale_shape

if TYPE_CHECKING:
    from dovetail.planning import Parameters
    from dovetail_transforms.rewriting import Replacement


class QuantizeConversion:
    """Conversion by QuantizeLinear with the parameters of the target format."""

    def build(self, op: Replacement, value: ir.Value, step: Step) -> ir.Value:
        """Quantize `value`, a float of the type that the target format expresses."""
        assert step.target is not None and step.parameters is not None
        scale, zero = _parameters(op, step.target, step.parameters, value)
        result = op.QuantizeLinear(value, scale, zero, axis=step.target.axis, block_size=step.target.group)
        return _typed(result, step.target.dtype, value)


class DequantizeConversion:
    """Conversion by DequantizeLinear with the parameters of the source format."""

    def build(self, op: Replacement, value: ir.Value, step: Step) -> ir.Value:
        """Dequantize the integers `value` to the float type that the source format expresses."""
        assert step.source is not None and step.parameters is not None
        scale, zero = _parameters(op, step.source, step.parameters, value)
        result = op.DequantizeLinear(value, scale, zero, axis=step.source.axis, block_size=step.source.group)
        return _typed(result, Format.of(step.source.expressed).dtype, value)


def _parameters(op: Replacement, format_: Format, parameters: Parameters, value: ir.Value) -> tuple[ir.Value, ir.Value]:
    shape = scale_shape(format_, value.shape) if format_.axis is None or format_.group is not None else None
    scale, zero = parameter_tensors(format_, parameters, shape)
    return op.constant(scale, "scale"), op.constant(zero, "zero_point")


def parameter_tensors(
    format_: Format, parameters: Parameters, shape: tuple[int, ...] | None = None
) -> tuple[ir.Tensor, ir.Tensor]:
    """Return scale and zero point as QuantizeLinear and DequantizeLinear read them, of `shape` (None for a vector)."""
    expressed = Format.of(format_.expressed).dtype.numpy()
    scale = np.asarray(parameters.scale, np.float32).astype(expressed)
    zero = np.asarray(parameters.zero_point).astype(format_.dtype.numpy())
    if shape is not None:
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return ir.Tensor(scale), ir.Tensor(zero, dtype=format_.dtype)


def _typed(result: ir.Value, dtype: ir.DataType, like: ir.Value) -> ir.Value:
    result.type, result.shape = ir.TensorType(dtype), like.shape
    return result
