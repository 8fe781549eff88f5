"""Several projections of few bits in one operator, with the norm before them; weights that are indices into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

from dovetail_transforms.decompositions.rules.activations import sigmoid_weighted
from dovetail_transforms.decompositions.rules.norms import root_mean_square
from dovetail_transforms.decompositions.rules.weights import dequantized_rows, unpacked

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula

    Results = Sequence[ir.Value | None]


def _normalized(op: Formula) -> tuple[ir.Value, ir.Value | None]:
    """Return the input after its norm, and its sum with `skip`, in the type to compute in.

    Both are rounded to the type of the node, as they would be between two operators.
    """
    a, skip, scale = op.required("A"), op.wide_or_none("skip"), op.wide_or_none("norm_scale")
    total = None if skip is None else op.cast(op.Add(op.wide(a), skip), dtype_of(a))
    x = op.wide(a if total is None else total)
    if scale is None:
        return x, total
    normal, _ = root_mean_square(op, x, [-1], op.attribute("epsilon"))
    return op.wide(op.cast(op.Mul(normal, scale), dtype_of(a))), total


def _projection(op: Formula, x: ir.Value, name: str, rows: int) -> ir.Value:
    bits, block = op.attribute("bits"), op.attribute("block_size")
    op.refuse_if(bits not in (2, 4, 8), f"its numbers have {bits} bits")
    shape = rows, op.attribute("K")
    weight = dequantized_rows(op, op.required(f"{name}_B"), op.required(f"{name}_scales"), None, shape, block, bits)
    return op.plus_optional(op.MatMul(x, op.Transpose(weight, perm=[1, 0])), op.wide_or_none(f"{name}_bias"))


def _queries_keys_values(op: Formula) -> Results:
    """Queries, keys and values of one normalized input, and the sum before the norm."""
    dtype, (x, total) = dtype_of(op.required("A")), _normalized(op)
    rows = {"q": op.attribute("Nq"), "k": op.attribute("Nkv"), "v": op.attribute("Nkv")}
    return (*(op.cast(_projection(op, x, name, count), dtype) for name, count in rows.items()), total)


def _gated_layer(op: Formula) -> Results:
    """A gate's activation times another projection of one normalized input, and the sum before the norm."""
    dtype, (x, total), rows = dtype_of(op.required("A")), _normalized(op), op.attribute("N")
    activation = op.attribute("activation")
    op.refuse_if(activation != "silu", f"its activation is '{activation}', of which no formula was checked")
    gate, up = (_projection(op, x, name, rows) for name in ("gate", "up"))
    return op.cast(op.Mul(sigmoid_weighted(op, gate), up), dtype), total


_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_FP4_POSITIVE = (0.0, 0.00520833333, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_FP4 = (*_FP4_POSITIVE, *(-number for number in _FP4_POSITIVE))
"""The numbers of the types FP4 and NF4, as a run of the kernel with unit vectors gives them."""


def _table_product(op: Formula) -> ir.Value:
    """The product with a weight whose numbers are indices of FP4 or NF4; of a byte, the high ones come first."""
    import numpy as np

    a, rows, columns = op.required("A"), op.attribute("N"), op.attribute("K")
    block = op.attribute("block_size")
    op.refuse_if(not op.attribute("transB"), "it is the product of a backward pass")
    op.refuse_if(rows * columns % block != 0 or columns % 2 != 0, "its last block is not full")
    numbers = op.tensor(np.array(_NF4 if op.attribute("quant_type") else _FP4, np.float32), "numbers")
    pairs = op.reshape(unpacked(op, op.required("B"), 4), -1, 2)  # the low ones first
    indices = op.Cast(op.Concat(op.slice(pairs, 1, 1, 2), op.slice(pairs, 1, 0, 1), axis=1), to=6)
    each = op.reshape(op.Gather(numbers, indices, axis=0), -1, block)
    scaled = op.Mul(each, op.reshape(op.wide(op.required("absmax")), -1, 1))
    weight = op.reshape(scaled, rows, columns)
    return op.cast(op.MatMul(op.wide(a), op.Transpose(weight, perm=[1, 0])), dtype_of(a))


RULES: Mapping = {
    "com.microsoft.MatMulNBitsQkv": _queries_keys_values,
    "com.microsoft.MatMulNBitsMlp": _gated_layer,
    "com.microsoft.MatMulBnb4": _table_product,
}
