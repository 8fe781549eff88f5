"""Weights that are quantized in slabs when they are written; those with a scale per block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir
from dovetail.planning import Parameters

from dovetail_quantize.integers import quantize_array, scale_shape

if TYPE_CHECKING:
    from dovetail.ir import Format, FreshNames

_AT_ONCE = 1 << 20  # numbers
ENERGY = "dovetail.energy"
"""Key of a weight's metadata: the energy of each channel that its products read, relative to their mean."""
BLOCKS = "dovetail.blocks"
"""Key of a weight's metadata: `StoredBlocks`, where a refinement has found its integers."""
_QUIET = 0.01  # of the mean energy; channels that the data left quiet count by it
Observed = Callable[..., Parameters]
"""Called with a part of a weight and, where there is any, with what its squared errors count by."""


class StoredBlocks(NamedTuple):
    """A weight in blocks that is already quantized.

    Attributes:
        integers: The integers, or bytes that hold several of them.
        scale: The scales, one per block.
        zero_point: The zero points, one per block.
    """

    integers: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray

    def packed(self, bits: int) -> StoredBlocks:
        """Return this with integers of fewer than 8 bits in bytes, for `unpacked`: the first in the lowest bits."""
        number = 8 // bits
        flat = self.integers.reshape(-1).astype(np.int8).view(np.uint8) & np.uint8((1 << bits) - 1)
        flat = np.pad(flat, (0, -flat.size % number))
        packed = flat[0::number].copy()
        for place in range(1, number):
            packed |= flat[place::number] << np.uint8(bits * place)
        return self._replace(integers=packed)

    def unpacked(self, format_: Format, shape: tuple[int, ...]) -> np.ndarray:
        """Return the integers of a weight of `shape`, in the type of the format."""
        bits = format_.dtype.bitwidth
        flat = np.empty((self.integers.size, 8 // bits), np.uint8)
        for place in range(8 // bits):
            flat[:, place] = self.integers >> np.uint8(bits * place) & np.uint8((1 << bits) - 1)
        found: np.ndarray = flat.reshape(-1)[: math.prod(shape)].reshape(shape)
        if not format_.element.startswith("u"):
            found = (found << np.uint8(8 - bits)).view(np.int8) >> np.int8(8 - bits)
        return found.astype(format_.dtype.numpy())

    def real(self, format_: Format, shape: tuple[int, ...], rows: int) -> np.ndarray:
        """Return the numbers of the first rows of a weight of `shape`."""
        assert format_.axis is not None and format_.group is not None
        axis = format_.axis % len(shape)
        scale, zero = (np.repeat(part, format_.group, axis=axis)[:rows] for part in (self.scale, self.zero_point))
        integers = self.unpacked(format_, shape)[:rows].astype(np.float32)
        return (integers - zero) * scale.astype(np.float32)


def packed_shape(shape: tuple[int, ...], bits: int) -> tuple[int]:
    """Return the shape of the bytes of `StoredBlocks.packed`."""
    return (-(-math.prod(shape) * bits // 8),)


class BlockWeight:
    """A weight in a format with a scale per group of elements.

    A model of a billion weights has tens of millions of scales, so these are not kept as `Parameters`: integers,
    scales and zero points are lazy tensors, computed when they are written. Reading the first of them finds the scales
    and zero points, which are kept until all of them are read; integers are never kept.

    Args:
        source: The weight.
        format_: The format; it has a group.
        observed: Returns the parameters of a part of the weight, a slab along its first axis; see `Observed`.
        floats: Element type of the scales.
        energy: What squared errors count by, along the axis of the blocks.
        stored: What a refinement has found already, with packed integers.
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        format_: Format,
        observed: Observed,
        floats: ir.DataType,
        energy: np.ndarray | None = None,
        stored: StoredBlocks | None = None,
    ):
        self._energy, self._stored = energy, stored
        self._source, self._format, self._observed, self._floats = source, format_, observed, floats
        self._parameters: tuple[np.ndarray, np.ndarray] | None = None
        self._named: frozenset[str] = frozenset()
        self._left: set[str] = set()

    def constants(self, names: Mapping[str, str]) -> list[ir.LazyTensor]:
        """Return the parts that are named: `integers`, as the weight, and `scale` and `zero_point`, one per block."""
        self._named = frozenset(names)
        return [self._lazy(part, name) for part, name in names.items()]

    def _lazy(self, part: str, name: str) -> ir.LazyTensor:
        shape = tuple(self._source.shape.numpy())
        shape = shape if part == "integers" else scale_shape(self._format, shape)
        dtype = self._floats if part == "scale" else self._format.dtype
        return ir.LazyTensor(lambda: ir.Tensor(self._read(part)), dtype, ir.Shape(shape), name=name)

    def _read(self, part: str) -> np.ndarray:
        if self._stored is not None:
            return self._of_stored(self._stored, part)
        if self._parameters is None:
            self._parameters, self._left = self._observe(), set(self._named)
        scale, zero = self._parameters
        self._left.discard(part)
        if not self._left:
            self._parameters = None
        return {"scale": scale, "zero_point": zero}[part] if part != "integers" else self._quantized(scale, zero)

    def _of_stored(self, stored: StoredBlocks, part: str) -> np.ndarray:
        if part == "scale":
            return stored.scale.astype(self._floats.numpy())
        if part == "zero_point":
            return stored.zero_point.astype(self._format.dtype.numpy())
        return stored.unpacked(self._format, tuple(self._source.shape.numpy()))

    def _observe(self) -> tuple[np.ndarray, np.ndarray]:
        shape = scale_shape(self._format, self._source.shape.numpy())
        scale, zero = np.empty(shape, self._floats.numpy()), np.empty(shape, self._format.dtype.numpy())
        for rows, blocks, slab in _slabs(self._source.numpy(), self._format):
            energy = self._energy_of(rows, slab)
            found = self._observed(slab) if energy is None else self._observed(slab, energy)
            scale[blocks] = np.asarray(found.scale, np.float32).reshape(scale[blocks].shape)
            zero[blocks] = np.asarray(found.zero_point).reshape(zero[blocks].shape)
        return scale, zero

    def _energy_of(self, rows: slice, slab: np.ndarray) -> np.ndarray | None:
        """Return the energies for every number of a slab; None if all count alike."""
        if self._energy is None or self._format.axis is None:
            return None
        axis = self._format.axis % slab.ndim
        energy = np.maximum(self._energy[rows] if axis == 0 else self._energy, np.float32(_QUIET))
        return np.broadcast_to(energy.reshape([-1 if at == axis else 1 for at in range(slab.ndim)]), slab.shape)

    def _quantized(self, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
        """Return the integers for the scales as they are stored, in the type that they are stored in."""
        integers = np.empty(tuple(self._source.shape.numpy()), self._format.dtype.numpy())
        for rows, blocks, slab in _slabs(self._source.numpy(), self._format):
            parameters = Parameters(
                tuple(scale[blocks].astype(np.float64).reshape(-1).tolist()),
                tuple(zero[blocks].astype(np.int64).reshape(-1).tolist()),
            )
            integers[rows] = quantize_array(slab, self._format, parameters)
        return integers


def quantized_in_slabs(array: np.ndarray, format_: Format, parameters: Parameters) -> np.ndarray:
    """Quantize an array in slabs along its first axis, so that no copies of all of its floats are made."""
    if not array.ndim or format_.group is not None or array.size <= _AT_ONCE:
        return quantize_array(array, format_, parameters)
    integers = np.empty(array.shape, format_.dtype.numpy())
    step = max(1, _AT_ONCE * len(array) // array.size)
    by_row = format_.axis is not None and format_.axis % array.ndim == 0
    for start in range(0, len(array), step):
        rows = slice(start, start + step)
        own = Parameters(parameters.scale[rows], parameters.zero_point[rows]) if by_row else parameters
        integers[rows] = quantize_array(array[rows], format_, own)
    return integers


def block_constants(
    weight: ir.TensorProtocol,
    format_: Format,
    observed: Observed,
    floats: ir.DataType,
    name: str,
    names: FreshNames,
    energy: np.ndarray | None = None,
    stored: StoredBlocks | None = None,
) -> list[ir.Value]:
    """Return the inputs of the DequantizeLinear of a weight in blocks: integers, scales and, unless 0, zero points.

    Args:
        weight: The weight.
        format_: The format; it has a group.
        observed: See `BlockWeight`.
        floats: Element type of the scales.
        name: Prefix of their names.
        names: Generator of fresh names.
        energy: See `BlockWeight`.
        stored: See `BlockWeight`.
    """
    parts = {"integers": names.fresh(f"{name}_{format_.element}"), "scale": names.fresh(f"{name}_scale")}
    if format_.scheme == "asymmetric" or format_.element.startswith("u"):
        parts["zero_point"] = names.fresh(f"{name}_zero_point")
    return [
        ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
        for tensor in BlockWeight(weight, format_, observed, floats, energy, stored).constants(parts)
    ]


def _slabs(array: np.ndarray, format_: Format) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield parts of a weight along its first axis, of whole blocks, with their places among weights and scales."""
    assert format_.axis is not None and format_.group is not None
    unit = format_.group if format_.axis % array.ndim == 0 else 1
    across = max(1, array.size // max(1, array.shape[0]))
    step = max(1, _AT_ONCE // (across * unit)) * unit
    for start in range(0, array.shape[0], step):
        rows = slice(start, min(start + step, array.shape[0]))
        yield rows, slice(rows.start // unit, rows.stop // unit), array[rows]
