"""Rules for normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered, PdOp
from dovetail_paddle.lowering.rules.convolution import channels_first
from dovetail_paddle.lowering.rules.elementwise import one_type

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter


def batch_norm(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value | None, ...]:
    """Normalize with the mean and variance from training; the other results are for training only."""
    names = ("scale", "bias", "mean", "variance")
    shape = op.known_shape("mean")

    def parameter(name: str) -> ir.Value:
        if op.original(name) is not None:
            return op[name]
        if shape is None:
            raise OpNotLowered(f"it has no '{name}', and the number of its channels is open")
        return _filled(shape, float(name == "scale"), op.dtype("mean"), emit)

    one_type(op.original(name) for name in names[2:])
    one_type(op.original(name) for name in names[:2])
    attributes = {"epsilon": op.attr("epsilon")}
    made = channels_first(op, "x", emit, lambda x: emit("BatchNormalization", [x, *map(parameter, names)], attributes))
    return made, op["mean"], op["variance"], None, None, None


def _filled(shape: Sequence[int], number: float, dtype: ir.DataType, emit: GraphEmitter) -> ir.Value:
    import numpy as np

    return emit.constant(np.full(shape, number, dtype.numpy()))


def layer_norm(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, None]:
    """Normalize over the last axes; ONNX requires scale and bias of their extents."""
    axis, shape, x = op.attr("begin_norm_axis"), op.shape("x"), op["x"]
    if shape is None:
        raise OpNotLowered("the rank of its input is not known")
    normalized = op.known_shape("x", axis)

    def parameter(name: str) -> ir.Value | None:
        if op.original(name) is None:
            if name == "bias":
                return None
            if normalized is None:
                raise OpNotLowered("it has no scale, and the extents that it normalizes are open")
            return _filled(normalized, 1, op.dtype("x"), emit)
        value = op[name]
        if len(shape[axis:]) > 1:
            if normalized is None:
                raise OpNotLowered("the extents that it normalizes are open")
            value = emit("Reshape", [value, emit.ints(normalized)])
        dtype = op.dtype(name)
        return value if dtype == op.dtype("x") else emit.cast(value, op.dtype("x"))

    inputs = [x, *[value for value in map(parameter, ("scale", "bias")) if value is not None]]
    return emit("LayerNormalization", inputs, {"axis": axis, "epsilon": op.attr("epsilon")}), None, None


def instance_norm(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, None]:
    """Normalize each channel."""
    channels = (op.shape("x") or (None, None))[1]
    if channels is None:
        raise OpNotLowered("the number of its channels is open")

    def parameter(name: str) -> ir.Value:
        if op.original(name) is not None:
            return op[name]
        return _filled([channels], float(name == "scale"), op.dtype("x"), emit)

    inputs = [op["x"], parameter("scale"), parameter("bias")]
    return emit("InstanceNormalization", inputs, {"epsilon": op.attr("epsilon")}), None, None


def group_norm(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None, None]:
    """Normalize groups of channels as instances, then apply the per-channel scale and bias."""
    groups, dtype, rank = op.attr("groups"), op.dtype("x"), op.rank("x")

    def lower(x: ir.Value) -> ir.Value:
        ones, zeros = (_filled([groups], number, dtype, emit) for number in (1, 0))
        flat = emit("Reshape", [x, emit.ints([0, groups, -1])])
        made = emit("InstanceNormalization", [flat, ones, zeros], {"epsilon": float(op.attr("epsilon"))})
        known = op.known_shape("x", 1) if op.attr("data_format") == "NCHW" else None
        form = emit("Shape", [x]) if known is None else emit.ints([-1, *known])
        made = emit("Reshape", [made, form])
        for name, combine in (("scale", "Mul"), ("bias", "Add")):
            if op.original(name) is not None:
                value = emit("Reshape", [op[name], emit.ints([-1, *[1] * (rank - 2)])])
                made = emit(combine, [made, value])
        return made

    return channels_first(op, "x", emit, lower), None, None


def unit_norm(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, ir.Value]:
    """Divide by the length along an axis."""
    axis, dtype = op.attr("axis"), op.dtype("x")
    squares = emit("ReduceSumSquare", [op["x"], emit.ints([axis])], {"keepdims": 1})
    length = emit("Sqrt", [emit("Add", [squares, emit.scalar(op.attr("epsilon"), dtype)])])
    return emit("Div", [op["x"], length]), length


def affine_channel(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Scale and shift each channel."""
    last = op.attr("data_layout") == "NHWC"
    form = emit.ints([-1] if last else [-1, *[1] * (op.rank("x") - 2)])
    scaled = emit("Mul", [op["x"], emit("Reshape", [op["scale"], form])])
    return emit("Add", [scaled, emit("Reshape", [op["bias"], form])])


def rms_norm(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None]:
    """Divide by the root mean square over the last axes."""
    import onnx_ir as ir

    rank, dtype = op.rank("x"), op.dtype("x")
    axes = list(range(rank - len(op.attr("normalized_shape")), rank))
    x = op["x"] if dtype == ir.DataType.FLOAT else emit.cast(op["x"], ir.DataType.FLOAT)
    mean = emit("ReduceMean", [emit("Mul", [x, x]), emit.ints(axes)], {"keepdims": 1})
    length = emit("Sqrt", [emit("Add", [mean, emit.scalar(op.attr("epsilon"), ir.DataType.FLOAT)])])
    made = emit("Div", [x, length])
    made = made if dtype == ir.DataType.FLOAT else emit.cast(made, dtype)
    return (made if op.original("scale") is None else emit("Mul", [made, op["scale"]])), None


RULES = {
    "batch_norm": batch_norm, "sync_batch_norm": batch_norm, "rms_norm": rms_norm,
    "layer_norm": layer_norm, "instance_norm": instance_norm, "group_norm": group_norm,
    "norm": unit_norm, "affine_channel": affine_channel,
}  # fmt: skip
