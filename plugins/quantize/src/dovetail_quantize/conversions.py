"""The conversions between floats and integers: QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir.formats import Format

if TYPE_CHECKING:
    from dovetail.planning.conversion import Step
    from dovetail.planning.holdings import Parameters
    from dovetail_rewriting import Replacement

__all__ = ["Dequantize", "Quantize"]


class Quantize:
    """`QuantizeLinear` with the parameters of the target format."""

    def build(self, op: Replacement, value: ir.Value, step: Step) -> ir.Value:
        """Return the integers that hold `value`, a float of the type that the target format expresses."""
        scale, zero = _parameters(op, step.target, step.parameters)
        result = op.QuantizeLinear(value, scale, zero, axis=step.target.axis)
        return _typed(result, step.target.dtype, value)


class Dequantize:
    """`DequantizeLinear` with the parameters of the source format."""

    def build(self, op: Replacement, value: ir.Value, step: Step) -> ir.Value:
        """Return the floats that the integers `value` hold, in the type that the source format expresses."""
        scale, zero = _parameters(op, step.source, step.parameters)
        result = op.DequantizeLinear(value, scale, zero, axis=step.source.axis)
        return _typed(result, Format.of(step.source.expressed).dtype, value)


def _parameters(op: Replacement, format_: Format, parameters: Parameters) -> tuple[ir.Value, ir.Value]:
    expressed = Format.of(format_.expressed).dtype.numpy()
    scale = np.asarray(parameters.scale, np.float32).astype(expressed)
    zero = np.asarray(parameters.zero_point).astype(format_.dtype.numpy())
    if format_.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    made = (ir.Tensor(scale), ir.Tensor(zero, dtype=format_.dtype))
    return op.constant(made[0], "scale"), op.constant(made[1], "zero_point")


def _typed(result: ir.Value, dtype: ir.DataType, like: ir.Value) -> ir.Value:
    result.type, result.shape = ir.TensorType(dtype), like.shape
    return result
