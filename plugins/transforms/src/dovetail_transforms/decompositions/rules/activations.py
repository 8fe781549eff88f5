"""Activations, alone and with the bias, the gate or the residual that ONNX Runtime fuses into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula

    Results = Sequence[ir.Value | None]


def gelu(op: Formula, x: ir.Value) -> ir.Value:
    """Return `x * 0.5 * (1 + erf(x / sqrt(2)))`."""
    inner = op.Erf(op.scaled(x, math.sqrt(0.5)))
    return op.Mul(op.scaled(x, 0.5), op.Add(inner, op.number(1, x)))


def tanh_gelu(op: Formula, x: ir.Value) -> ir.Value:
    """Return `x * 0.5 * (1 + tanh(x * (0.7978845608 + 0.0356774081 * x * x)))`."""
    root = math.sqrt(2 / math.pi)
    inner = op.Add(op.scaled(op.Mul(x, x), 0.044715 * root), op.number(root, x))
    return op.Mul(op.scaled(x, 0.5), op.Add(op.Tanh(op.Mul(x, inner)), op.number(1, x)))


def sigmoid_weighted(op: Formula, x: ir.Value, alpha: float = 1.0) -> ir.Value:
    """Return `x * sigmoid(alpha * x)`."""
    return op.Mul(x, op.Sigmoid(op.scaled(x, alpha)))


def _gelu(op: Formula) -> ir.Value:
    """`x * 0.5 * (1 + erf(x / sqrt(2)))`."""
    x = op.required("X")
    return op.cast(gelu(op, op.wide(x)), dtype_of(x))


def _bias_gelu(op: Formula) -> ir.Value:
    """Gelu of `A + B`."""
    x = op.required("A")
    return op.cast(gelu(op, op.Add(op.wide(x), op.wide(op.required("B")))), dtype_of(x))


def _fast_gelu(op: Formula) -> ir.Value:
    """Gelu of `X + bias` by a tanh."""
    x = op.required("X")
    return op.cast(tanh_gelu(op, op.plus_optional(op.wide(x), op.wide_or_none("bias"))), dtype_of(x))


def _quick_gelu(op: Formula) -> ir.Value:
    """`x * sigmoid(alpha * x)`."""
    x = op.required("X")
    return op.cast(sigmoid_weighted(op, op.wide(x), op.attribute("alpha")), dtype_of(x))


def _bias_split_gelu(op: Formula) -> ir.Value:
    """The first half of the channels of `X + bias`, times the Gelu of the second half."""
    x = op.required("X")
    total, last = op.Add(op.wide(x), op.wide(op.required("bias"))), op.rank(x) - 1
    width = op.extent(x, last) or op.extent(op.required("bias"), 0)
    if width is None:
        op.refuse("the number of its channels is open")
    left, right = op.split(total, last, [width // 2] * 2)
    return op.cast(op.Mul(left, gelu(op, right)), dtype_of(x))


def _bias_add(op: Formula) -> ir.Value:
    """`X + bias + skip`."""
    x = op.required("X")
    total = op.Add(op.Add(op.wide(x), op.wide(op.required("bias"))), op.wide(op.required("skip")))
    return op.cast(total, dtype_of(x))


def _bias_softmax(op: Formula) -> ir.Value:
    """Softmax of `data + bias` over all axes from `axis` on.

    A bias of fewer axes or of extents 1 is repeated: along the axes before `axis` with `is_inner_broadcast`, else along
    the first ones.
    """
    x, bias = op.required("data"), op.wide(op.required("bias"))
    rank, axis = op.rank(x), op.attribute("axis") % op.rank(x)
    missing = rank - op.rank(bias)
    if op.attribute("is_inner_broadcast") and missing:
        op.refuse("its bias lacks inner axes")
    total = op.Add(op.wide(x), bias)
    if axis == rank - 1:
        return op.cast(op.Softmax(total, axis=-1), dtype_of(x))
    flat = op.Softmax(op.reshape(total, *[0] * axis, -1), axis=-1)
    return op.cast(op.shaped_like(flat, x), dtype_of(x))


def _bias_dropout(op: Formula) -> Results:
    """`data + bias + residual`; nothing is dropped outside of training."""
    training = op.input("training_mode")
    known = op.known(training)
    op.refuse_if(training is not None and (known is None or bool(known)), "it may run in training mode")
    x = op.required("data")
    total = op.plus_optional(op.Add(op.wide(x), op.wide(op.required("bias"))), op.wide_or_none("residual"))
    mask = None
    if op.is_read("mask"):
        mask = op.Equal(total, total)  # a NaN would give False, where the mask is of no use either
    return op.cast(total, dtype_of(x)), mask


def _scaled_silu(op: Formula) -> ir.Value:
    """`z * sigmoid(z)` for `z = scale * X`, rounded to the type of the node after every step."""
    x, scale = op.required("X"), op.input("scale")
    dtype, wide = dtype_of(x), op.wide(x)
    if scale is None:
        scaled = op.scaled(wide, op.attribute("alpha"))
    else:
        scaled = op.Mul(wide, op.scalar(op.wide(scale)))
    rounded = op.cast(scaled, dtype)
    gate = op.cast(op.Sigmoid(op.wide(rounded)), dtype)
    return op.cast(op.Mul(op.wide(rounded), op.wide(gate)), dtype)


def gated(
    op: Formula, gate: ir.Value, up: ir.Value, alpha: float, beta: float, limit: float | None
) -> tuple[ir.Value, ir.Value]:
    """Return the two factors of a gated activation: `G * sigmoid(alpha * G)`, and `L + beta`.

    G is the gate of at most `limit`, and L the other half between `-limit` and `limit`; None for no limit.
    """
    if limit is not None:
        low, high = op.number(-limit, gate, "limit"), op.number(limit, gate, "limit")
        gate, up = op.Min(gate, high), op.Max(op.Min(up, high), low)
    return sigmoid_weighted(op, gate, alpha), op.Add(up, op.number(beta, up)) if beta else up


def _swiglu(op: Formula) -> ir.Value:
    """`G * sigmoid(alpha * G) * (L + beta)`, of two inputs or of the halves of one."""
    gate, up = op.required("gate"), op.input("up")
    dtype, wide = dtype_of(gate), op.wide(gate)
    if up is None:
        last = op.rank(gate) - 1
        width = op.required_extent(gate, last, "last extent of its input")
        wide, other = op.split(wide, last, [width // 2] * 2)
    else:
        other = op.wide(up)
    limit = op.attribute("limit")
    alpha, beta = op.attribute("activation_alpha"), op.attribute("activation_beta")
    left, right = gated(op, wide, other, alpha, beta, limit if limit > 0 else None)
    if op.attribute("round_activation"):
        left = op.wide(op.cast(left, dtype))
    return op.cast(op.Mul(left, right), dtype)


def _gated_add(op: Formula) -> ir.Value:
    """`X + Y * gate`, the product rounded to the type of the node."""
    op.refuse_if(
        op.input("gate_weight") is not None, "its gate is projected, with an order of sums that is not defined"
    )
    x = op.required("X")
    product = op.cast(op.Mul(op.wide(op.required("Y")), op.wide(op.required("gate"))), dtype_of(x))
    return op.cast(op.Add(op.wide(x), op.wide(product)), dtype_of(x))


RULES = {
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.BiasGelu": _bias_gelu,
    "com.microsoft.FastGelu": _fast_gelu,
    "com.microsoft.QuickGelu": _quick_gelu,
    "com.microsoft.BiasSplitGelu": _bias_split_gelu,
    "com.microsoft.BiasAdd": _bias_add,
    "com.microsoft.BiasSoftmax": _bias_softmax,
    "com.microsoft.BiasDropout": _bias_dropout,
    "com.microsoft.ScaledSiLU": _scaled_silu,
    "com.microsoft.SwiGLU": _swiglu,
    "com.microsoft.GatedAdd": _gated_add,
}
