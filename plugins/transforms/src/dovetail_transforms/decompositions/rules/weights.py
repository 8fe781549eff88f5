"""Weights of few bits: products with them, and rows gathered from them.

Several numbers share a byte, the first one in its low bits. Constants stay as small as their type allows: 4 bits from
opset 21 on, where DequantizeLinear supports blocks, else 8; they are computed when the model is saved. Scales are
applied in float32, regardless of their type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dovetail.ir import dtype_of

from dovetail_transforms.lowering.node_facts import extents

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail_transforms.decompositions.formula import Formula

BLOCKS = 21
"""The opset from which on DequantizeLinear has blocks and reads 4 bits."""


def lazy_constant(
    op: Formula, make: Callable[[], np.ndarray], dtype: ir.DataType, shape: tuple[int, ...], what: str
) -> ir.Value:
    """Create a constant that is computed when the model is saved."""
    import onnx_ir as ir

    def tensor() -> ir.TensorProtocol:
        return ir.tensor(make(), dtype=dtype)

    return op.constant(ir.LazyTensor(tensor, dtype=dtype, shape=ir.Shape(shape)), what)


def split_bytes(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return the numbers that bytes hold, along the last axis."""
    import numpy as np

    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = packed[..., None] >> shifts & (2**bits - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


def held_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer, which is not read; None for what is known only at run time."""
    return None if value.is_graph_input() else value.const_value


def unpacked(op: Formula, packed: ir.Value, bits: int) -> ir.Value:
    """Return the numbers that bytes hold, uint8, along the last axis: a constant of a constant, else computed."""
    import onnx_ir as ir

    if bits == 8:
        return packed
    rank, tensor = op.rank(packed), held_tensor(packed)
    known = extents(packed)
    if tensor is not None and known is not None and None not in known:
        shape = (*(extent or 0 for extent in known[:-1]), (known[-1] or 0) * (8 // bits))
        return lazy_constant(op, lambda: split_bytes(tensor.numpy(), bits), ir.DataType.UINT8, shape, "numbers")
    up = op.number(8 - bits, packed)
    parts = []
    for start in range(0, 8, bits):
        left = 8 - bits - start
        low = op.BitShift(packed, op.number(left, packed), direction="LEFT") if left else packed
        parts.append(op.unsqueeze(op.BitShift(low, up, direction="RIGHT"), rank))
    return op.reshape(op.Concat(*parts, axis=rank), *[0] * (rank - 1), -1)


def dequantized_rows(
    op: Formula,
    packed: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value | None,
    shape: tuple[int, int],
    block: int,
    bits: int,
) -> ir.Value:
    """Return a matrix in float32 whose rows consist of blocks with a scale each.

    Args:
        op: The formula.
        packed: Its numbers; every row begins with a byte, and the last block may have numbers beyond the row.
        scales: A scale per row and block.
        zero_points: The number that is 0: packed like the rows, or in floats; None for the one in the middle.
        shape: The extents of the matrix.
        block: The length of a block.
        bits: The bits of a number.
    """
    import numpy as np
    import onnx_ir as ir

    rows, columns = shape
    blocks = -(-columns // block)
    scales = op.reshape(op.wide(scales), rows, blocks)
    in_floats = zero_points is not None and zero_points.dtype != ir.DataType.UINT8
    tensor = held_tensor(packed)
    if bits in (4, 8) and op.version >= BLOCKS and tensor is not None and not in_floats and columns % block == 0:
        dtype = ir.DataType.UINT4 if bits == 4 else ir.DataType.UINT8

        def numbers(source: ir.TensorProtocol, width: int) -> np.ndarray:
            held = split_bytes(source.numpy().reshape(rows, -1), bits)[:, :width]
            return held.astype(dtype.numpy())

        weight = lazy_constant(op, lambda: numbers(tensor, columns), dtype, (rows, columns), "weight")
        held = None if zero_points is None else held_tensor(zero_points)
        if zero_points is None:
            middle = np.full((rows, blocks), 2 ** (bits - 1), dtype.numpy())
            zeros = op.constant(ir.tensor(middle, dtype=dtype), "zero_points")
            return op.DequantizeLinear(weight, scales, zeros, axis=1, block_size=block)
        if held is not None:
            zeros = lazy_constant(op, lambda: numbers(held, blocks), dtype, (rows, blocks), "zero_points")
            return op.DequantizeLinear(weight, scales, zeros, axis=1, block_size=block)
    number = op.wide(op.reshape(unpacked(op, packed, bits), rows, blocks, block))
    if zero_points is None:
        zero = op.number(2 ** (bits - 1), number)
    elif in_floats:
        zero = op.reshape(op.wide(zero_points), rows, blocks, 1)
    else:
        zero = unpacked(
            op, op.reshape(zero_points, rows, -1) if held_tensor(zero_points) is None else zero_points, bits
        )
        zero = op.slice(op.reshape(zero, rows, -1), 1, 0, blocks)
        zero = op.unsqueeze(op.wide(zero), 2)
    weight = op.reshape(op.Mul(op.Sub(number, zero), op.unsqueeze(scales, 2)), rows, blocks * block)
    return weight if blocks * block == columns else op.slice(weight, 1, 0, columns)


def _check_bits(op: Formula, bits: int) -> None:
    op.refuse_if(bits not in (2, 4, 8), f"its numbers have {bits} bits")


def _mat_mul_n_bits(op: Formula) -> ir.Value:
    """`A B + bias` with a weight of 2, 4 or 8 bits in blocks of its inner axis.

    `accuracy_level` is the least accuracy, and here all is float32; the kernel may round A to 8 bits at level 4. With
    `g_idx`, the kernel on CPUs takes 8 for all packed zero points, as runs with unit vectors show; here they count, as
    documented.
    """
    a = op.required("A")
    bits, block = op.attribute("bits"), op.attribute("block_size")
    _check_bits(op, bits)
    op.refuse_if(op.attribute("weight_prepacked") != 0, "its weight is laid out for one GPU kernel")
    op.refuse_if(0 in (extents(op.required("B")) or ()), "its weight is empty")
    shape = op.attribute("N"), op.attribute("K")
    if op.input("g_idx") is None:
        weight = dequantized_rows(
            op, op.required("B"), op.required("scales"), op.input("zero_points"), shape, block, bits
        )
    else:
        weight = _grouped_by_index(op, shape, block, bits)
    product = op.MatMul(op.wide(a), op.Transpose(weight, perm=[1, 0]))
    return op.cast(op.plus_optional(product, op.wide_or_none("bias")), dtype_of(a))


def _grouped_by_index(op: Formula, shape: tuple[int, int], block: int, bits: int) -> ir.Value:
    """Return the weight of a product whose columns name the blocks that they take scale and zero point of."""
    import onnx_ir as ir

    rows, columns = shape
    blocks = -(-columns // block)
    groups = op.slice(op.required("g_idx"), 0, 0, columns)
    number = op.reshape(unpacked(op, op.required("B"), bits), rows, blocks * block)
    number = op.wide(op.slice(number, 1, 0, columns))
    zero = op.input("zero_points")
    if zero is None:
        middle = op.number(2 ** (bits - 1), number)
    else:
        zero = zero if zero.dtype != ir.DataType.UINT8 else unpacked(op, zero, bits)
        middle = op.Gather(op.wide(op.reshape(zero, rows, -1)), groups, axis=1)
    scales = op.Gather(op.reshape(op.wide(op.required("scales")), rows, blocks), groups, axis=1)
    return op.Mul(op.Sub(number, middle), scales)


def _gather_block_quantized(op: Formula) -> ir.Value:
    """Rows gathered from a table of few bits or small floats, times their scales; zeros for an index out of range."""
    import onnx_ir as ir

    data, indices, scales = op.required("data"), op.required("indices"), op.required("scales")
    rank, dtype = op.rank(data), dtype_of(scales)
    gather, quantize = op.attribute("gather_axis") % rank, op.attribute("quantize_axis") % rank
    table = _table(op, data, gather)
    count = op.required_extent(data, gather, "number of its rows")
    low, high = op.number(-count, indices), op.number(count, indices)
    inside = op.And(op.GreaterOrEqual(indices, low), op.Less(indices, high))
    safe = op.Where(inside, indices, op.number(0, indices))
    number = table.gathered(op, safe)
    shift = op.rank(indices) - 1 if quantize > gather else 0
    length = table.length if quantize == rank - 1 else op.required_extent(data, quantize, "quantized extent")
    block = op.attribute("block_size") or length

    def spread(values: ir.Value) -> ir.Value:
        """Return scales or zero points for every number; one of extent 1 holds for a whole axis."""
        if quantize == gather:
            return values
        if op.extent(values, quantize + shift) == 1:
            return values
        import numpy as np

        places = op.tensor(np.arange(length) // block, "blocks")
        return op.Gather(values, places, axis=quantize + shift)

    def rows_of(values: ir.Value) -> ir.Value:
        if op.extent(values, gather) == 1 and count != 1 and quantize != gather:
            return op.reshape(values, *_ones_for(op, values, gather, op.rank(indices)))
        if quantize != gather:
            return op.Gather(values, safe, axis=gather)
        wrapped = op.Where(op.Less(safe, op.number(0, safe)), op.Add(safe, op.number(count, safe)), safe)
        return op.Gather(values, op.Div(wrapped, op.number(block, wrapped)), axis=gather)

    zero = op.input("zero_points")
    if zero is not None:
        zero_table = _table(op, zero, gather)
        held = zero_table.whole(op) if quantize == gather else zero_table.gathered(op, safe)
        held = rows_of(held) if quantize == gather else held
        if quantize == rank - 1 and quantize != gather:
            held = op.slice(held, quantize + shift, 0, -(-length // block))
        number = op.Sub(number, spread(held))
    elif table.middle:
        number = op.Sub(number, op.number(table.middle, number))
    result = op.Mul(number, spread(rows_of(op.wide(scales))))
    axes = [*range(gather), *range(gather + op.rank(indices), op.rank(result))]
    outside = op.unsqueeze(inside, *axes) if axes else inside
    result = op.Where(outside, result, op.number(0, ir.DataType.FLOAT))
    return op.cast(result, dtype)


def _ones_for(op: Formula, values: ir.Value, gather: int, count: int) -> list[int]:
    known = [op.required_extent(values, axis, "shape of its scales") for axis in range(op.rank(values))]
    return [*known[:gather], *[1] * count, *known[gather + 1 :]]


class _Table:
    """A table of numbers, as Gather reads it.

    Attributes:
        value: The table, which may hold several numbers in a byte.
        bits: The bits of a number in it; 0 for floats.
        axis: The axis that is gathered.
        length: The extent of the last axis in numbers.
        offset: What was added to the numbers so that none is negative.
        middle: The number that is 0 without zero points.
    """

    def __init__(self, value: ir.Value, bits: int, axis: int, length: int, offset: int, middle: int):
        self.value, self.bits, self.axis = value, bits, axis
        self.length, self.offset, self.middle = length, offset, middle

    def gathered(self, op: Formula, indices: ir.Value) -> ir.Value:
        """Return the numbers that indices choose, in float32."""
        return self._numbers(op, op.Gather(self.value, indices, axis=self.axis))

    def whole(self, op: Formula) -> ir.Value:
        """Return all numbers, in float32."""
        return self._numbers(op, self.value)

    def _numbers(self, op: Formula, held: ir.Value) -> ir.Value:
        number = op.wide(unpacked(op, held, self.bits) if self.bits else held)
        return op.Sub(number, op.number(self.offset, number)) if self.offset else number


def _table(op: Formula, data: ir.Value, axis: int) -> _Table:
    """Return a table that Gather reads: bytes as they are, pairs of 4 bits as bytes, small floats as float16."""
    import numpy as np
    import onnx_ir as ir

    dtype, rank = dtype_of(data), op.rank(data)
    last = op.required_extent(data, rank - 1, "last extent of its table")
    if dtype == ir.DataType.UINT8:
        bits = op.attribute("bits")
        _check_bits(op, bits)
        op.refuse_if(bits < 8 and axis == rank - 1, "it gathers parts of bytes")
        return _Table(data, bits, axis, last * (8 // bits), 0, 2 ** (bits - 1))
    tensor, known = held_tensor(data), extents(data)
    if tensor is None or known is None or None in known:
        op.refuse(f"its table of {dtype.name} is not constant")
    shape = tuple(extent or 0 for extent in known)
    if dtype not in (ir.DataType.INT4, ir.DataType.UINT4):
        held = lazy_constant(op, lambda: tensor.numpy().astype(np.float16), ir.DataType.FLOAT16, shape, "table")
        return _Table(held, 0, axis, last, 0, 0)
    offset = 8 if dtype == ir.DataType.INT4 else 0
    pairs = last % 2 == 0 and axis != rank - 1

    def numbers() -> np.ndarray:
        shifted = (tensor.numpy().astype(np.int8) + offset).astype(np.uint8)
        return shifted[..., ::2] | shifted[..., 1::2] << 4 if pairs else shifted

    shape = (*shape[:-1], last // 2) if pairs else shape
    held = lazy_constant(op, numbers, ir.DataType.UINT8, shape, "table")
    return _Table(held, 4 if pairs else 8, axis, last, offset, 0)


RULES: Mapping = {
    "com.microsoft.MatMulNBits": _mat_mul_n_bits,
    "com.microsoft.GatherBlockQuantized": _gather_block_quantized,
}
