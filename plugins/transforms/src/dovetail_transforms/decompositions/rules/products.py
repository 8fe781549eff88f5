"""Matrix products and convolutions, with the transpositions, activations and layouts that ONNX Runtime fuses in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.activations import tanh_gelu

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula


def _transposed(op: Formula, x: ir.Value, inner: int, batch: int) -> ir.Value:
    """Return a matrix with its first axis moved after the other batch axes, and then its last two axes exchanged.

    ONNX Runtime reads `transBatchA` as: the axes but the last move left by one, and the first becomes the last but one.
    """
    if not inner and not batch:
        return x
    rank = op.rank(x)
    if rank < 2:
        return x
    order = list(range(rank))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if inner:
        order[-1], order[-2] = order[-2], order[-1]
    return op.Transpose(x, perm=order) if order != list(range(rank)) else x


def _fused_product(op: Formula) -> ir.Value:
    batches = op.node.op_type != "TransposeMatMul"
    a, b = (
        _transposed(
            op,
            op.wide(op.required(side)),
            op.attribute(f"trans{side}"),
            op.attribute(f"transBatch{side}") if batches else 0,
        )
        for side in "AB"
    )
    return op.scaled(op.MatMul(a, b), op.attribute("alpha"))


def _fused_mat_mul(op: Formula) -> ir.Value:
    """`alpha * A B`, with the last axes, or the first axis and those after it, exchanged before."""
    return op.cast(_fused_product(op), dtype_of(op.required("A")))


def _fused_mat_mul_activation(op: Formula) -> ir.Value:
    """An activation of `alpha * A B`."""
    names = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    result = _activated(op, _fused_product(op), op.attribute("activation"), [op.attribute(name) for name in names])
    return op.cast(result, dtype_of(op.required("A")))


_PARAMETERS = {
    "Clip": (),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
    "HardSwish": (),
}
"""The activations that ONNX Runtime fuses, with their attributes."""


def _activated(op: Formula, x: ir.Value, activation: str, given: Sequence[float | None]) -> ir.Value:
    """Return an activation of ONNX with its numbers in order."""
    if not activation:
        return x
    if activation not in _PARAMETERS:
        op.refuse(f"its activation '{activation}' is unknown")
    if activation == "Clip":
        low, high = ([number for number in given if number is not None] + [None, None])[:2]
        if low is None or high is None:
            op.refuse("its activation Clip has no bounds")
        return op.Max(op.Min(x, op.number(high, x)), op.number(low, x))
    parameters: dict[str, Any] = dict(zip(_PARAMETERS[activation], given))
    return op.make(activation, [x], **parameters)


def _fused_gemm(op: Formula) -> ir.Value:
    """An activation of Gemm."""
    a, c = op.required("A"), op.wide_or_none("C")
    kept = {name: op.attribute(name) for name in ("alpha", "beta", "transA", "transB")}
    product = op.Gemm(op.wide(a), op.wide(op.required("B")), *([] if c is None else [c]), **kept)
    given = [op.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return op.cast(_activated(op, product, op.attribute("activation", ""), given), dtype_of(a))


def _gemm_fast_gelu(op: Formula) -> ir.Value:
    """FastGelu of a product and a bias."""
    x = op.required("X")
    product = op.MatMul(op.wide(x), op.wide(op.required("W")))
    return op.cast(tanh_gelu(op, op.plus_optional(product, op.wide_or_none("bias"))), dtype_of(x))


_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def convolved(op: Formula, x: ir.Value, w: ir.Value, b: ir.Value | None) -> ir.Value:
    """Return the convolution that the attributes of the node describe."""
    kept = {name: op.attribute(name) for name in _WINDOW}
    return op.Conv(x, w, *([] if b is None else [b]), **kept)


def to_channels_first(op: Formula, x: ir.Value) -> ir.Value:
    """Return a tensor whose last axis has the channels with these as its second one."""
    rank = op.rank(x)
    return op.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])


def to_channels_last(op: Formula, x: ir.Value) -> ir.Value:
    """Return a tensor whose second axis has the channels with these as its last one."""
    rank = op.rank(x)
    return op.Transpose(x, perm=[0, *range(2, rank), 1])


def _fused_conv(op: Formula) -> ir.Value:
    """An activation of a convolution and a residual."""
    x = op.required("X")
    result = convolved(op, op.wide(x), op.wide(op.required("W")), op.wide_or_none("B"))
    result = op.plus_optional(result, op.wide_or_none("Z"))
    given = op.attribute("activation_params", [])
    return op.cast(_activated(op, result, op.attribute("activation", ""), given), dtype_of(x))


def _nhwc_conv(op: Formula) -> ir.Value:
    """A convolution whose input and result have the channels last; the weight is as in Conv.

    The documentation of its input describes channels first, which is that of Conv; the CUDA kernel, the name and
    NhwcFusedConv say channels last.
    """
    x = op.required("X")
    planes = to_channels_first(op, op.wide(x))
    result = convolved(op, planes, op.wide(op.required("W")), op.wide_or_none("B"))
    return op.cast(to_channels_last(op, result), dtype_of(x))


def _nhwc_fused_conv(op: Formula) -> ir.Value:
    """An activation of a convolution and a residual, all with the channels last."""
    x = op.required("X")
    planes = to_channels_first(op, op.wide(x))
    result = to_channels_last(op, convolved(op, planes, op.wide(op.required("W")), op.wide_or_none("B")))
    result = op.plus_optional(result, op.wide_or_none("Z"))
    given = op.attribute("activation_params", [])
    return op.cast(_activated(op, result, op.attribute("activation", ""), given), dtype_of(x))


RULES = {
    "com.microsoft.FusedMatMul": _fused_mat_mul,
    "com.microsoft.TransposeMatMul": _fused_mat_mul,
    "com.microsoft.FusedMatMulActivation": _fused_mat_mul_activation,
    "com.microsoft.FusedGemm": _fused_gemm,
    "com.microsoft.GemmFastGelu": _gemm_fast_gelu,
    "com.microsoft.FusedConv": _fused_conv,
    "com.microsoft.NhwcConv": _nhwc_conv,
    "com.microsoft.NhwcFusedConv": _nhwc_fused_conv,
}
