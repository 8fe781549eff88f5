"""Normalizations: layer and RMS normalization with the sums before them, and over groups of channels.

Kernels compute in float32 and round once, regardless of the node's type; so do these nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.activations import sigmoid_weighted

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula

    Results = Sequence[ir.Value | None]


def root_mean_square(op: Formula, x: ir.Value, axes: Sequence[int], epsilon: float) -> tuple[ir.Value, ir.Value]:
    """Return `x` over its root mean square, and the reciprocal of this root."""
    square = op.mean(op.Mul(x, x), *axes)
    inverse = op.Reciprocal(op.Sqrt(op.Add(square, op.number(epsilon, x, "epsilon"))))
    return op.Mul(x, inverse), inverse


def _centered(op: Formula, x: ir.Value, axes: Sequence[int], epsilon: float) -> tuple[ir.Value, ir.Value, ir.Value]:
    mean = op.mean(x, *axes)
    normal, inverse = root_mean_square(op, op.Sub(x, mean), axes, epsilon)
    return normal, mean, inverse


def _simplified_layer_normalization(op: Formula) -> Results:
    """RMS normalization over the axes from `axis` on; the result has the type of the scale."""
    x, scale = op.required("X"), op.required("scale")
    axis = op.attribute("axis")
    if axis >= 0:
        axis -= op.rank(x)
    normal, inverse = root_mean_square(op, op.wide(x), range(axis, 0), op.attribute("epsilon"))
    return op.cast(op.Mul(normal, op.wide(scale)), dtype_of(scale)), inverse


def _skip_sum(op: Formula) -> ir.Value:
    x = op.Add(op.wide(op.required("input")), op.wide(op.required("skip")))
    return op.plus_optional(x, op.wide_or_none("bias"))


def _skip_layer_normalization(op: Formula) -> Results:
    """Layer normalization of `input + skip + bias`, and this sum; `skip` may lack the axis of the batch."""
    dtype, x = dtype_of(op.required("input")), _skip_sum(op)
    normal, mean, inverse = _centered(op, x, [-1], op.attribute("epsilon"))
    result = op.affine(normal, op.wide(op.required("gamma")), op.wide_or_none("beta"))
    return op.cast(result, dtype), mean, inverse, op.cast(x, dtype)


def _skip_simplified_layer_normalization(op: Formula) -> Results:
    """RMS normalization of `input + skip + bias`, and this sum."""
    dtype, x = dtype_of(op.required("input")), _skip_sum(op)
    normal, inverse = root_mean_square(op, x, [-1], op.attribute("epsilon"))
    mean = op.mean(x, -1) if op.is_read("mean") else None
    return op.cast(op.Mul(normal, op.wide(op.required("gamma"))), dtype), mean, inverse, op.cast(x, dtype)


def _embeddings(op: Formula, word: ir.Value, position: ir.Value, segment: ir.Value | None) -> ir.Value:
    """Return the sum of the embeddings that ids choose; positions count from 0 without ids of their own."""
    ids = op.required("input_ids")
    places = op.input("position_ids") if op.node.op_type == "EmbedLayerNormalization" else None
    if places is None:
        places = op.unsqueeze(op.counting(op.size(ids, 1)), 0)
    result = op.Add(op.Gather(word, ids, axis=0), op.Gather(position, places, axis=0))
    if segment is None:
        return result
    return op.Add(result, op.Gather(segment, op.required("segment_ids"), axis=0))


def _mask_index(op: Formula) -> ir.Value:
    """Return the number of ones in every row of the mask; zeros without a mask."""
    import onnx_ir as ir

    mask, ids = op.input("mask"), op.required("input_ids")
    if mask is None:
        zeros = op.Mul(ids, op.number(0, ids))
        return op.total(zeros, 1, keepdims=0)
    ones = op.cast(op.Equal(mask, op.number(1, mask)), ir.DataType.INT32)
    return op.total(ones, 1, keepdims=0)


def _embed_layer_normalization(op: Formula) -> Results:
    """Layer normalization of a sum of embeddings.

    `mask_index` counts the ones of a row, wherever they stand; the documentation says the position of the first zero.
    """
    word = op.required("word_embedding")
    segment = op.wide_or_none("segment_embedding") if op.input("segment_ids") is not None else None
    x = _embeddings(op, op.wide(word), op.wide(op.required("position_embedding")), segment)
    normal, _, _ = _centered(op, x, [-1], op.attribute("epsilon"))
    result = op.affine(normal, op.wide(op.required("gamma")), op.wide(op.required("beta")))
    mask_index = _mask_index(op) if op.is_read("mask_index") else None
    return op.cast(result, dtype_of(word)), mask_index, op.cast(x, dtype_of(word))


def _quantized_embed_layer_normalization(op: Formula) -> Results:
    """Layer normalization of a sum of embeddings that are integers, as gamma and beta are."""

    def dequantized(name: str, stem: str) -> ir.Value:
        parts = op.required(name), op.required(f"{stem}_scale"), op.required(f"{stem}_zero_point")
        return op.DequantizeLinear(parts[0], op.scalar(parts[1]), op.scalar(parts[2]))

    given = op.input("segment_ids") is not None and op.input("segment_embedding") is not None
    segment = dequantized("segment_embedding", "segment_embedding") if given else None
    word = dequantized("word_embedding_quant", "word_embedding")
    x = _embeddings(op, word, dequantized("position_embedding_quant", "position_embedding"), segment)
    normal, _, _ = _centered(op, x, [-1], op.attribute("epsilon"))
    result = op.affine(normal, dequantized("gamma_quant", "gamma"), dequantized("beta_quant", "beta"))
    return result, _mask_index(op) if op.is_read("mask_index_out") else None


def _over_groups(op: Formula, x: ir.Value) -> ir.Value:
    """Return the group normalization of `x` in float32, scaled, with the activation of the node."""
    last, groups = op.attribute("channels_last"), op.attribute("groups")
    rank = op.rank(x)
    to_front, to_back = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    planes = op.Transpose(x, perm=to_front) if last else x
    grouped = op.reshape(planes, 0, groups, -1)
    normal, _, _ = _centered(op, grouped, [-1], op.attribute("epsilon"))
    normal = op.shaped_like(normal, planes)
    normal = op.Transpose(normal, perm=to_back) if last else normal
    gamma, beta = op.wide(op.required("gamma")), op.wide(op.required("beta"))
    if not last:
        gamma, beta = (op.reshape(one, -1, *[1] * (rank - 2)) for one in (gamma, beta))
    result = op.Add(op.Mul(normal, gamma), beta)
    return sigmoid_weighted(op, result) if op.attribute("activation") else result


def _group_norm(op: Formula) -> ir.Value:
    """Group normalization in either layout, followed by SiLU if the node says so."""
    x = op.required("X")
    return op.cast(_over_groups(op, op.wide(x)), dtype_of(x))


def _skip_group_norm(op: Formula) -> Results:
    """Group normalization of `X + skip + bias`, and this sum; `skip` may be the same everywhere in a plane."""
    x, skip = op.required("X"), op.wide(op.required("skip"))
    last, rank = op.attribute("channels_last"), op.rank(x)
    bias = op.wide_or_none("bias")
    if op.rank(skip) == 2:
        skip = op.unsqueeze(skip, *(range(1, rank - 1) if last else range(2, rank)))
    if bias is not None and not last:
        bias = op.reshape(bias, -1, *[1] * (rank - 2))
    total = op.plus_optional(op.Add(op.wide(x), skip), bias)
    return op.cast(_over_groups(op, total), dtype_of(x)), op.cast(total, dtype_of(x))


def _gated_rms_norm(op: Formula) -> ir.Value:
    """RMS normalization of every group of as many elements as the scale has, times a gate."""
    x, scale = op.required("X"), op.required("scale")
    length = op.required_extent(scale, 0, "length of its scale")
    shape = op.Shape(x)
    grouped = op.Reshape(op.wide(x), op.integers([-1, length], "groups"))
    normal, _ = root_mean_square(op, grouped, [-1], op.attribute("epsilon"))
    result = op.Reshape(op.Mul(normal, op.wide(scale)), shape)
    gate = op.wide(op.required("gate"))
    gate = op.Sigmoid(gate) if op.attribute("activation") == "sigmoid" else sigmoid_weighted(op, gate)
    return op.cast(op.Mul(result, gate), dtype_of(x))


def _branchwise_rms_norm(op: Formula) -> ir.Value:
    """RMS normalization of every branch, which is the last axis or a part of it."""
    x, scale, branches = op.required("X"), op.wide_or_none("scale"), op.attribute("num_branches")
    rank = op.rank(x)
    width = op.required_extent(x, rank - 1, "last extent of its input")
    if branches:
        grouped = op.reshape(op.wide(x), *[0] * (rank - 1), branches, width // branches)
    else:
        grouped, branches = op.wide(x), op.required_extent(x, rank - 2, "number of branches") if scale else 0
    result, _ = root_mean_square(op, grouped, [-1], op.attribute("epsilon"))
    if scale is not None:
        flat = op.rank(scale) == 1 and op.required_extent(scale, 0, "length of its scale") != _last(op, grouped)
        result = op.Mul(result, op.reshape(scale, branches, -1) if flat else scale)
    result = op.reshape(result, *[0] * (rank - 1), -1) if op.attribute("num_branches") else result
    return op.cast(result, dtype_of(x))


def _last(op: Formula, x: ir.Value) -> int:
    return op.required_extent(x, op.rank(x) - 1, "last extent of its input")


RULES = {
    "SimplifiedLayerNormalization": _simplified_layer_normalization,
    "com.microsoft.SkipLayerNormalization": _skip_layer_normalization,
    "com.microsoft.SkipSimplifiedLayerNormalization": _skip_simplified_layer_normalization,
    "com.microsoft.EmbedLayerNormalization": _embed_layer_normalization,
    "com.microsoft.QEmbedLayerNormalization": _quantized_embed_layer_normalization,
    "com.microsoft.GroupNorm": _group_norm,
    "com.microsoft.SkipGroupNorm": _skip_group_norm,
    "com.microsoft.GatedRMSNorm": _gated_rms_norm,
    "com.microsoft.BranchwiseRMSNorm": _branchwise_rms_norm,
}
