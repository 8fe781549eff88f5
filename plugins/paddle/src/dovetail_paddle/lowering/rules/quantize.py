"""Rules for quantization: Paddle's scale is the largest magnitude, ONNX's is the step size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.rules import Rule


def _largest(op: PdOp) -> int:
    """Return the largest quantized value."""
    if op.attr("bit_length") != 8:
        raise OpNotLowered(f"it quantizes to {op.attr('bit_length')} bits, and 8 are supported")
    return 127


def _positive(step: np.ndarray | np.floating) -> np.ndarray:
    """Return step sizes without zeros, which an all-zero tensor has; dividing an array without axes gives a number."""
    import numpy as np

    return np.where(np.asarray(step) == 0, np.finfo(np.float32).tiny, step).astype(np.float32)


def _step(op: PdOp, argument: str, emit: GraphEmitter, *, scalar: bool) -> ir.Value:
    """Convert a scale from the largest magnitude to the step size."""
    import numpy as np

    known, largest = op.constant(argument), _largest(op)
    if known is not None:
        step = _positive(np.asarray(known, np.float32) / np.float32(largest))
        return emit.constant(step.reshape(()) if scalar else step.reshape(-1))
    step = emit("Div", [op[argument], emit.scalar(largest, op.dtype(argument))])
    return emit("Reshape", [step, emit.ints([] if scalar else [-1])])


def _zero(step: ir.Value, scalar: bool, emit: GraphEmitter) -> ir.Value:
    import numpy as np

    if scalar:
        return emit.constant(np.array(0, np.int8))
    if step.shape is None:
        raise OpNotLowered("the number of its scales is not known")
    return emit.constant(np.zeros(step.shape.numpy(), np.int8))


def linear(onnx_name: str) -> Rule:
    """Create the rule of `quantize_linear` and `dequantize_linear`."""

    def rule(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, None, None]:
        import numpy as np
        import onnx_ir as ir

        axis, known = op.attr("quant_axis"), op.constant("scale")
        scalar = axis < 0 or (known is not None and known.size == 1)
        offset = op.constant("zero_point")
        if offset is not None and offset.any():
            raise OpNotLowered("its zero point is not zero")
        step = _step(op, "scale", emit, scalar=scalar)
        zero = _zero(step, scalar, emit)
        value, held = op["x"], op.constant("x")
        if onnx_name == "DequantizeLinear":
            integers = emit.integers(value)
            if integers is not None:
                value = integers
            elif held is not None and held.dtype != np.int8:
                value = emit.constant(np.clip(np.rint(held), -128, 127).astype(np.int8), f"{value.name}.int8")
            elif op.dtype("x").is_floating_point():
                value = emit.cast(value, ir.DataType.INT8)
        made = emit(onnx_name, [value, step, zero], {} if scalar else {"axis": axis})
        if onnx_name == "QuantizeLinear" and op.dtype("x") == op.result_dtype():
            made = emit.as_floats(made, op.dtype("x"))
        return made, None, None, None

    return rule


def _quantized(array: np.ndarray, scale: np.ndarray, axis: int | None) -> np.ndarray:
    import numpy as np

    form = [-1 if axis == at else 1 for at in range(array.ndim)] if axis is not None else [1] * array.ndim
    step = np.maximum(scale.reshape(form), np.finfo(np.float32).tiny)
    return np.clip(np.rint(array / step * np.float32(127)), -127, 127)


def _scale_of(array: np.ndarray, axis: int | None) -> np.ndarray:
    import numpy as np

    axes = None if axis is None else tuple(at for at in range(array.ndim) if at != axis)
    return np.abs(array).max(axis=axes).astype(np.float32).reshape(-1)


def _pair(op: PdOp, step: ir.Value, zero: ir.Value, emit: GraphEmitter) -> ir.Value:
    return emit("DequantizeLinear", [emit("QuantizeLinear", [op["x"], step, zero]), step, zero])


def with_given_scale(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value, None, None]:
    """Quantize and dequantize with the scale from training."""
    step = _step(op, "in_scale", emit, scalar=True)
    return _pair(op, step, _zero(step, True, emit), emit), op["in_scale"], None, None


def observed(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, None, None]:
    """Return the value unchanged: training measures its scale here."""
    return op["x"], None, None, None


def weights(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Quantize and dequantize a parameter with scales from its own magnitudes."""
    import numpy as np

    array = op.constant("x")
    axis = op.attr("quant_axis") if "quant_axis" in op.operator.argument else None
    _largest(op)
    if array is None:
        if axis is not None:
            raise OpNotLowered("it takes its scales from a computed tensor, channel by channel")
        top = emit("ReduceMax", [emit("Abs", [op["x"]])], {"keepdims": 0})
        step = emit("Div", [top, emit.scalar(127, op.dtype("x"))])
        return _pair(op, step, _zero(step, True, emit), emit), emit("Reshape", [top, emit.ints([1])])
    scale = _scale_of(array, axis)
    held = _quantized(array.astype(np.float32), scale, axis).astype(np.int8)
    step = _positive(scale / np.float32(127))
    value = emit.constant(held, f"{op.operand('x').name}.int8")
    scalar = axis is None
    steps = emit.constant(step.reshape(()) if scalar else step)
    made = emit("DequantizeLinear", [value, steps, _zero(steps, scalar, emit)], {} if scalar else {"axis": axis})
    return made, emit.constant(scale)


def integers_by_given_scale(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value | None, ...]:
    """Quantize to integers stored as floats, the form in older programs."""
    step = _step(op, "in_scale", emit, scalar=True)
    made = emit.cast(emit("QuantizeLinear", [op["x"], step, _zero(step, True, emit)]), op.dtype("x"))
    return made, op["in_scale"], *[None] * (len(op.operator.outputs) - 2)


def integer_weights(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Quantize a parameter to integers stored as floats."""
    import numpy as np

    array = op.constant("x")
    if array is None:
        raise OpNotLowered("it takes its scale from a computed tensor")
    _largest(op)
    axis = op.attr("quant_axis") if "quant_axis" in op.operator.argument else None
    scale = _scale_of(array, axis)
    held = _quantized(array.astype(np.float32), scale, axis).astype(array.dtype)
    return emit.constant(held, f"{op.operand('x').name}.integers"), emit.constant(scale)


def dequantize(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply integers stored as floats by the step size."""
    dtype = op.dtype("x")
    return emit("Mul", [op["x"], emit("Div", [op["scale"], emit.scalar(op.attr("max_range"), dtype)])])


def dequantize_channels(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Dequantize with a scale per channel and one for the activation."""
    scales, dtype, value = op.items("scales"), op.dtype("x"), op["x"]
    bits, rank = op.attr("quant_bits"), op.rank("x")
    axis = op.attr("quant_axis") if len(scales) == 1 else op.attr("x_num_col_dims")
    for at, scale in enumerate(scales):
        step = emit("Div", [scale, emit.scalar(2 ** (bits[at] - 1) - 1, dtype)])
        form = [-1 if place == axis else 1 for place in range(rank)] if at == 0 else [1] * rank
        value = emit("Mul", [value, emit("Reshape", [step, emit.ints(form)])])
    return value


RULES = {
    "quantize_linear": linear("QuantizeLinear"), "dequantize_linear": linear("DequantizeLinear"),
    "fake_quantize_dequantize_moving_average_abs_max": with_given_scale,
    "moving_average_abs_max_scale": observed,
    "fake_quantize_dequantize_abs_max": weights, "fake_channel_wise_quantize_dequantize_abs_max": weights,
    "fake_quantize_moving_average_abs_max": integers_by_given_scale,
    "fake_quantize_range_abs_max": integers_by_given_scale, "fake_quantize_abs_max": integer_weights,
    "fake_channel_wise_quantize_abs_max": integer_weights, "fake_dequantize_max_abs": dequantize,
    "fake_channel_wise_dequantize_max_abs": dequantize_channels,
}  # fmt: skip
