"""Layers expressed in elementary operators: normalization, softmax and recurrence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import dtype_of, input_of, shape_of

from dovetail_transforms.lowering.node_facts import attribute, extents, rank
from dovetail_transforms.lowering.rules.elementwise import integers, scalar
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


_FLOAT = 1  # the default of stash_type


def _trailing_axes(node: ir.Node, x: ir.Value) -> list[int] | None:
    """Return the axes from `axis` on, counted from the end; None if the required rank is unknown."""
    axis = attribute(node, "axis", -1)
    known = rank(x)
    if axis < 0:
        return list(range(axis, 0))
    return None if known is None else list(range(axis - known, 0))


def _known_axes(node: ir.Node, x: ir.Value) -> str:
    if x.dtype is None:
        return "the type of its input is unknown"
    return "" if _trailing_axes(node, x) is not None else "its axis counts from the front, and the rank is unknown"


def _mean(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    """Build a mean over the axes of `node`, which are an attribute up to opset 17 and an input from then on."""
    axes = _trailing_axes(node, input_of(node, 0))
    assert axes is not None, "the check of the rule asks for them"
    if op.version < 18:
        return op.ReduceMean(x, axes=axes, keepdims=1)
    return op.ReduceMean(x, integers(op, axes, "axes"), keepdims=1)


def _cast(op: Replacement, x: ir.Value, dtype: int) -> ir.Value:
    if x.dtype is not None and int(x.dtype) == dtype:
        return x
    made = op.Cast(x, to=dtype)
    made.dtype = type(x.dtype)(dtype) if x.dtype is not None else None
    return made


def _layer_normalization(op: Replacement, node: ir.Node, x: ir.Value, scale: ir.Value, bias: ir.Value | None):
    inside = _cast(op, x, attribute(node, "stash_type", _FLOAT))
    mean = _mean(op, node, inside)
    centered = op.Sub(inside, mean)
    variance = _mean(op, node, op.Mul(centered, centered))
    epsilon = scalar(op, attribute(node, "epsilon", 1e-5), inside, "epsilon")
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))
    normal = op.Mul(centered, inverse)
    normal = normal if inside is x else op.Cast(normal, to=int(dtype_of(x)))
    scaled = op.Mul(normal, scale)
    return scaled if bias is None else op.Add(scaled, bias), mean, inverse


def _rms_normalization(op: Replacement, node: ir.Node, x: ir.Value, scale: ir.Value) -> ir.Value:
    inside = _cast(op, x, attribute(node, "stash_type", _FLOAT))
    epsilon = scalar(op, attribute(node, "epsilon", 1e-5), inside, "epsilon")
    root = op.Sqrt(op.Add(_mean(op, node, op.Mul(inside, inside)), epsilon))
    normal = op.Div(inside, root)
    return op.Mul(normal if inside.dtype == scale.dtype else op.Cast(normal, to=int(dtype_of(scale))), scale)


def _known_channels(x: ir.Value, scale: ir.Value) -> str:
    if x.dtype is None:
        return "the type of its input is unknown"
    known = extents(scale)
    return "" if known and known[0] is not None else "the number of its channels is open"


def _grouped(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    """Build the input with one channel per group."""
    return op.Reshape(x, integers(op, [0, attribute(node, "num_groups"), -1], "groups"))


def _group_normalization(op: Replacement, node: ir.Node, x: ir.Value, scale: ir.Value, bias: ir.Value) -> ir.Value:
    epsilon = attribute(node, "epsilon", 1e-5)
    return op.Reshape(op.InstanceNormalization(_grouped(op, node, x), scale, bias, epsilon=epsilon), op.Shape(x))


def _group_normalization_per_channel(
    op: Replacement, node: ir.Node, x: ir.Value, scale: ir.Value, bias: ir.Value
) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    inside = _cast(op, x, attribute(node, "stash_type", _FLOAT))
    dtype, groups = dtype_of(inside), attribute(node, "num_groups")
    ones, zeros = (
        op.constant(ir.tensor(np.full(groups, number, dtype.numpy()), dtype=dtype), what)
        for number, what in ((1, "ones"), (0, "zeros"))
    )
    normal = op.InstanceNormalization(_grouped(op, node, inside), ones, zeros, epsilon=attribute(node, "epsilon", 1e-5))
    normal = normal if inside is x else op.Cast(normal, to=int(dtype_of(x)))
    channels = op.Reshape(normal, integers(op, [0, shape_of(scale).numpy()[0], -1], "channels"))
    column = integers(op, [-1, 1], "column")
    result = op.Add(op.Mul(channels, op.Reshape(scale, column)), op.Reshape(bias, column))
    return op.Reshape(result, op.Shape(x))


def _softmax_pattern(op, x):
    return op.any_of("Hardmax", "LogSoftmax", "Softmax")(x)


def _known_rank(x: ir.Value) -> str:
    return "the rank of its input is unknown" if rank(x) is None else ""


def _axis_to_the_end(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    last = len(shape_of(x)) - 1
    axis = attribute(node, "axis", -1) % (last + 1)
    order = list(range(last + 1))
    order[axis], order[last] = last, axis  # a swap is its own inverse
    return op.Transpose(op.like(node, op.Transpose(x, perm=order), axis=last), perm=order)


_EXCHANGE = (1, 0, 2)
_BATCH_FIRST = (2, 0, 1, 3)  # of [steps, directions, batch, size]


def _recurrent_pattern(op, x):
    return op.any_of("GRU", "LSTM", "RNN")(x, ...)


def _batch_second(op: Replacement, node: ir.Node, x: ir.Value) -> list[ir.Value | None]:
    def exchanged(value: ir.Value | None) -> ir.Value | None:
        return None if value is None else op.Transpose(value, perm=_EXCHANGE)

    inputs = [exchanged(x), *node.inputs[1:5], *map(exchanged, node.inputs[5:7]), *node.inputs[7:]]
    made = op.like(node, *inputs, layout=None)
    made = [made] if len(node.outputs) == 1 else list(made)
    return [
        op.Transpose(value, perm=_EXCHANGE if index else _BATCH_FIRST)
        if result.uses() or result.is_graph_output()
        else None
        for index, (value, result) in enumerate(zip(made, node.outputs))
    ]


RULES = (
    Rewrite(
        "layer-normalization",
        lambda op, x, scale, bias=None: op.LayerNormalization(x, scale, bias),
        _layer_normalization,
        _known_axes,
    ),
    Rewrite("rms-normalization", lambda op, x, scale: op.RMSNormalization(x, scale), _rms_normalization, _known_axes),
    Rewrite(
        "group-normalization",
        lambda op, x, scale, bias: op.GroupNormalization(x, scale, bias),
        _group_normalization,
    ),
    Rewrite(
        "group-normalization-per-channel",
        lambda op, x, scale, bias: op.GroupNormalization(x, scale, bias),
        _group_normalization_per_channel,
        _known_channels,
    ),
    Rewrite("axis-to-the-end", _softmax_pattern, _axis_to_the_end, _known_rank),
    Rewrite("batch-second", _recurrent_pattern, _batch_second),
)
