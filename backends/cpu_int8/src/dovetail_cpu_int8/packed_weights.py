"""Weights of 2, 4 or 8 bits in the layout of ONNX Runtime's MatMulNBits and GatherBlockQuantized."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.ir import input_of
from dovetail.plugin import is_onnx
from dovetail_onnx import StreamedTensor, parts_of
from dovetail_quantize import WEIGHT_PARTS, BlockTensor, EncodedWeight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.ir import Format
    from dovetail_transforms import NewNodes

_AT_ONCE = 1 << 20  # numbers
_LARGEST, _SMALLEST = 128, 16  # blocks that a scale per channel is repeated for
BITS = {
    ir.DataType.INT2: 2, ir.DataType.UINT2: 2, ir.DataType.INT4: 4, ir.DataType.UINT4: 4, ir.DataType.INT8: 8,
    ir.DataType.UINT8: 8,
}  # fmt: skip
"""Bits of the integers that the operators have kernels for."""


def packed_block(inner: int) -> int:
    """Return the size of the blocks that a scale per channel is repeated for, by the length of the sums."""
    return math.gcd(inner, _LARGEST)


class PackedWeight(NamedTuple):
    """A weight as its DequantizeLinear has it.

    Attributes:
        integers: The integers.
        scale: Their scales.
        zero_point: Their zero points, or None.
        across: Whether the sums run along axis 1, as in a transposed weight and in a table of rows.
        block: Elements along the sums that share a scale.
    """

    integers: ir.Value
    scale: ir.Value
    zero_point: ir.Value | None
    across: bool
    block: int

    @classmethod
    def read_by(cls, node: ir.Node, index: int, across: bool) -> PackedWeight | None:
        """Return the weight that a node reads dequantized, perhaps through a Transpose; None if no block fits it."""
        read = input_of(node, index).producer()
        if read is not None and read.op_type == "Transpose":
            read, across = input_of(read, 0).producer(), not across
        if read is None or read.op_type != "DequantizeLinear" or not is_onnx(read):
            return None
        integers, scale = input_of(read, 0), input_of(read, 1)
        zero = read.inputs[2] if len(read.inputs) > 2 else None
        if integers.const_value is None or scale.const_value is None or integers.dtype not in BITS:
            return None
        if integers.shape is None or len(integers.shape) != 2 or scale.shape is None:
            return None
        sums = 1 if across else 0
        axis, block = read.attributes.get_int("axis", 1) % 2, read.attributes.get_int("block_size", 0)
        inner = integers.shape.numpy()[sums]
        if block == 0 and axis != sums and len(scale.shape) == 1:
            block = packed_block(inner)
        elif axis != sums:
            return None
        fits = block >= _SMALLEST and block & (block - 1) == 0 and inner % block == 0
        return cls(integers, scale, zero, across, block) if fits else None

    @property
    def bits(self) -> int:
        """Bits of an integer."""
        return BITS[self.integers.dtype or ir.DataType.INT8]

    @property
    def extents(self) -> tuple[int, int]:
        """K, the length of the sums, and N, their number."""
        assert self.integers.shape is not None, "a constant has a shape"
        rows, columns = self.integers.shape.numpy()
        return (columns, rows) if self.across else (rows, columns)

    @property
    def floats(self) -> ir.DataType:
        """Element type of the scales."""
        return self.scale.dtype or ir.DataType.FLOAT


class PackedWeights:
    """Stores weights in the layout of ONNX Runtime's operators, each once, regardless of its readers.

    Integers are [N, K / block, block * bits / 8] bytes, or for tables alone [N, K * bits / 8], the same bytes. Scales
    and zero points are [N, K / block]; a scale per channel is repeated for blocks of up to 128. All of them are
    computed when they are written.

    Args:
        nodes: Makes the constants.
    """

    def __init__(self, nodes: NewNodes):
        self._nodes = nodes
        self._stored: dict[tuple[ir.Value, bool, int], tuple[ir.Value, ...]] = {}

    def of(self, weight: PackedWeight, flat: bool = False) -> tuple[ir.Value, ...]:
        """Return integers, scales and, for unsigned weights, zero points.

        Args:
            weight: The weight.
            flat: Whether integers that are not stored yet have a row per sum, without an axis for blocks.
        """
        key = weight.integers, weight.across, weight.block
        if key not in self._stored:
            self._stored[key] = tuple(self._nodes.constant(tensor) for tensor in _tensors(weight, flat))
        return self._stored[key]


def _tensors(weight: PackedWeight, flat: bool) -> list[ir.LazyTensor]:
    bits, (inner, outer), block = weight.bits, weight.extents, weight.block
    blocks, name = inner // block, weight.integers.name
    shape = (outer, inner * bits // 8) if flat else (outer, blocks, block * bits // 8)
    zero = weight.zero_point
    if zero is not None and not (zero.dtype or weight.floats).name.startswith("U"):
        zero = None
    made = _Packed(weight, zero is not None)
    found = [
        PackedTensor(made.integers, shape, f"{name}_packed"),
        lazy(lambda: made.parameters("scale"), weight.floats, (outer, blocks), f"{weight.scale.name}_blocks"),
    ]
    if zero is not None:
        points = (outer, math.ceil(blocks * bits / 8))
        found.append(
            lazy(lambda: packed(made.parameters("zero_point"), bits), ir.DataType.UINT8, points, f"{zero.name}_packed")
        )
    return found


class _Packed:
    """A weight in the order of the operators.

    Args:
        weight: The weight.
        has_zero_point: Whether its zero points are read, too.
    """

    def __init__(self, weight: PackedWeight, has_zero_point: bool):
        self._weight = weight
        tensor = weight.integers.const_value
        named = frozenset(WEIGHT_PARTS if has_zero_point else WEIGHT_PARTS[:2])
        self._encoded = None
        if isinstance(tensor, BlockTensor):
            self._encoded = EncodedWeight(tensor.encoded.weight, 0 if weight.across else 1, named)

    def integers(self) -> Iterator[np.ndarray]:
        """Yield the bytes, some sums at a time."""
        if self._encoded is not None:
            yield from self._encoded.integers(store_rows if self._weight.across else store_columns)
            return
        weight = self._weight
        tensor = weight.integers.const_value
        assert tensor is not None, "a weight is a constant"
        read, (inner, outer) = parts_of(tensor), weight.extents
        step = max(1, _AT_ONCE // inner)
        for start in range(0, outer, step):
            sums = slice(start, start + step)
            part = unsigned(read((sums,) if weight.across else (slice(None), sums)), weight.bits)
            yield packed(part if weight.across else part.T, weight.bits)

    def parameters(self, part: str) -> np.ndarray:
        """Return scales or zero points as [N, K / block]."""
        weight = self._weight
        if self._encoded is not None:
            array = self._encoded.parameters(part)
        else:
            value = weight.scale if part == "scale" else weight.zero_point
            assert value is not None and value.const_value is not None, "parameters are constants"
            array = value.const_value.numpy()
        if array.ndim == 1:
            return np.repeat(array[:, None], weight.extents[0] // weight.block, axis=1)
        return np.ascontiguousarray(array if weight.across else array.T)


class PackedTensor(StreamedTensor):
    """The integers of a weight in bytes, as operators of ONNX Runtime read them.

    Args:
        stream: Gives the bytes in order, in several parts.
        shape: Its extents.
        name: Its name.
    """

    def __init__(self, stream: Callable[[], Iterator[np.ndarray]], shape: tuple[int, ...], name: str):
        super().__init__(self._whole, ir.DataType.UINT8, ir.Shape(shape), name=name)
        self._stream = stream

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order."""
        for part in self._stream():
            yield part.reshape(-1).data

    def tobytes(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.chunks())

    def _whole(self) -> ir.Tensor:
        array = np.concatenate([part.reshape(-1) for part in self._stream()])
        return ir.Tensor(array.reshape(self.shape.numpy()), dtype=self.dtype)


def store_rows(format_: Format, integers: np.ndarray) -> np.ndarray:
    """Return the bytes of integers with sums along the last axis."""
    bits = format_.dtype.bitwidth
    return packed(unsigned(integers, bits).reshape(-1, integers.shape[-1]), bits)


def store_columns(format_: Format, integers: np.ndarray) -> np.ndarray:
    """Return the bytes of integers whose columns are sums."""
    bits = format_.dtype.bitwidth
    return packed(unsigned(integers, bits).T, bits)


def lazy(read: Callable[[], np.ndarray], dtype: ir.DataType, shape: tuple[int, ...], name: str) -> ir.LazyTensor:
    """Return a constant that is computed when it is written."""
    return ir.LazyTensor(lambda: ir.Tensor(read(), dtype=dtype), dtype, ir.Shape(shape), name=name)


def unsigned(integers: np.ndarray, bits: int) -> np.ndarray:
    """Return integers as uint8; signed ones are moved to the zero point that ONNX Runtime's operators assume."""
    if integers.dtype.name.startswith("u"):
        return integers.astype(np.uint8, copy=False)
    moved = integers.astype(np.int8, copy=False).view(np.uint8)
    return (moved + np.uint8(1 << (bits - 1))) & np.uint8((1 << bits) - 1)


def packed(array: np.ndarray, bits: int) -> np.ndarray:
    """Return rows of integers in bytes, the first of those that share a byte in its lowest bits."""
    array = np.ascontiguousarray(array).astype(np.uint8)
    number = 8 // bits
    if array.shape[1] % number:
        array = np.pad(array, ((0, 0), (0, -array.shape[1] % number)))
    found = array[:, 0::number].copy()
    for place in range(1, number):
        found |= array[:, place::number] << (bits * place)
    return found
