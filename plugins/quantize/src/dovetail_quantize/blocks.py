"""Weights with a scale per block, quantized part by part when they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from dovetail.ir import Format
from dovetail_onnx.array_workers import map_arrays
from dovetail_onnx.partial_tensors import StreamedTensor, parts_of

from dovetail_quantize.block_encoding import Observed, Store, as_stored, byte_type, encode, packed_bytes, unpacked
from dovetail_quantize.integers import scale_shape

if TYPE_CHECKING:
    from dovetail.ir import FreshNames
    from dovetail_onnx.partial_tensors import TensorIndex

    from dovetail_quantize.stored_blocks import StoredBlocks

_AT_ONCE = 1 << 20  # numbers
_WIDEST = 1 << 22  # numbers of a part that is read across rows, whose pieces of rows should not be too short
_SHORTEST = 1 << 10  # numbers of such a piece
ENERGY = "dovetail.energy"
"""Key of a weight's metadata: the energy of each channel that its products read, relative to their mean."""
WEIGHT_PARTS = ("integers", "scale", "zero_point")
"""Tensors that an encoded weight consists of."""


class BlockWeight:
    """A weight in a format with a scale per group of elements.

    A model of a billion weights has tens of millions of scales, so these are not kept as `Parameters`: integers,
    scales and zero points are lazy tensors, computed when they are written, a part of the weight at a time. Reading the
    first of them finds the scales and zero points, which are kept until all of them are read; integers are never kept.

    Args:
        source: The weight.
        format_: The format; it has a group.
        observed: Returns the parameters of a part of the weight; see `Observed`.
        floats: Element type of the scales.
        energy: Weights of squared errors, along the axis of the blocks.
        searched: Whether `observed` is the observer `least-squares`: additional processes may then find parameters,
            too.
        stored: Integers that a refinement has already found, packed.
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        format_: Format,
        observed: Observed,
        floats: ir.DataType,
        energy: np.ndarray | None = None,
        searched: bool = False,
        stored: StoredBlocks | None = None,
    ):
        self.source, self.format, self.floats = source, format_, floats
        self._energy, self._observed, self._searched = energy, observed, searched
        self._stored = stored

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the weight."""
        return tuple(self.source.shape.numpy())

    @property
    def _axis(self) -> int:
        assert self.format.axis is not None, "blocks run along an axis"
        return self.format.axis % len(self.extents)

    def constants(self, names: Mapping[str, str]) -> list[BlockTensor]:
        """Return the parts that are named: `integers`, as the weight, and `scale` and `zero_point`, one per block."""
        shapes = dict.fromkeys(WEIGHT_PARTS, scale_shape(self.format, self.extents)) | {"integers": self.extents}
        encoded = EncodedWeight(self, 0, frozenset(names))
        return [
            BlockTensor(encoded, part, self.floats if part == "scale" else self.format.dtype, shapes[part], name)
            for part, name in names.items()
        ]

    def encoded(
        self, axis: int, store: Store, known: Sequence[np.ndarray] | None = None
    ) -> Iterator[Sequence[np.ndarray]]:
        """Yield the integers of the weight as they are stored, their scales and zero points, part by part.

        Args:
            axis: The axis along which parts follow each other.
            store: Packs a part's integers into bytes; a function of a module.
            known: Scales and zero points, if they are known.
        """
        if self._stored is not None:
            yield from self._of_stored(self._stored, axis, store)
            return
        read = parts_of(self.source)
        settings = {
            "format": str(self.format), "floats": self.floats.name, "store": f"{store.__module__}:{store.__name__}",
            "known": known is not None,
        }  # fmt: skip

        def tasks() -> Iterator[tuple[dict[str, Any], Callable[[], list[np.ndarray]]]]:
            for index in self._indices(axis):
                yield settings, partial(self._arrays, read, index, known)

        yield from map_arrays(encode if self._searched else self._encode, tasks())

    def _of_stored(self, stored: StoredBlocks, axis: int, store: Store) -> Iterator[Sequence[np.ndarray]]:
        integers = stored.unpacked(self.format, self.extents)
        scale, zero = stored.scale.astype(self.floats.numpy()), stored.zero_point.astype(byte_type(self.format))
        for index in self._indices(axis):
            blocks = self._blocks(index)
            yield store(self.format, integers[index]), scale[blocks], zero[blocks]

    def _encode(self, settings: Mapping[str, Any], part: np.ndarray, *others: np.ndarray) -> Sequence[np.ndarray]:
        return encode(settings, part, *others, observed=self._observed)

    def _indices(self, axis: int) -> Iterator[TensorIndex]:
        """Yield the parts along an axis, of whole blocks."""
        unit = self.format.group if axis == self._axis else 1
        assert unit is not None
        extent, size = self.extents[axis], math.prod(self.extents)
        across = max(1, size // max(1, extent))
        step = max(1, _AT_ONCE // (across * unit)) * unit
        if axis:  # parts of rows
            step = max(step, min(_SHORTEST, max(1, _WIDEST // across)))
        for start in range(0, extent, step):
            yield (slice(None),) * axis + (slice(start, min(start + step, extent)),)

    def _arrays(
        self,
        read: Callable[[TensorIndex], np.ndarray],
        index: TensorIndex,
        known: Sequence[np.ndarray] | None,
    ) -> list[np.ndarray]:
        """Return the arguments of `encode` for a part."""
        arrays = [read(index)]
        if known is not None:
            arrays += [one[self._blocks(index)] for one in known]
        elif self._energy is not None:
            arrays.append(self._energy[index[self._axis]] if self._axis < len(index) else self._energy)
        return arrays

    def _blocks(self, index: TensorIndex) -> TensorIndex:
        """Return the index of the scales of a part."""
        found = list(index)
        if self._axis < len(found) and found[self._axis] != slice(None):
            at, group = found[self._axis], self.format.group
            assert group is not None
            found[self._axis] = slice(at.start // group, at.stop // group)
        return tuple(found)

    def naming(self, error: ValueError, axis: int) -> Exception:
        """Return the error of the observer, which names the weight, in place of that of the search alone."""
        read = parts_of(self.source)
        try:
            for index in self._indices(axis):
                self._observed(read(index))
        except Exception as found:  # whatever an observer raises
            return found
        return error


class EncodedWeight:
    """Integers, scales and zero points of a weight as some operator stores them.

    Args:
        weight: The weight.
        axis: See `BlockWeight.encoded`.
        named: Which of `WEIGHT_PARTS` are read.
    """

    def __init__(self, weight: BlockWeight, axis: int, named: frozenset[str]):
        self.weight, self.axis = weight, axis
        self._named = named
        self._kept: list[np.ndarray] = []
        self._left: set[str] = set()

    def integers(self, store: Store) -> Iterator[np.ndarray]:
        """Yield the bytes of the integers; scales and zero points are kept if they are to be read later."""
        known, found = self._kept, []
        for integers, *parameters in self._encoded(store, known or None):
            if not known:
                found.append(parameters)
            yield integers
        if not known:
            self._keep(found)
        self._has_read("integers")

    def parameters(self, part: str) -> np.ndarray:
        """Return the scales or the zero points, as `scale_shape` says."""
        if not self._kept:
            self._keep([parameters for _, *parameters in self._encoded(as_stored, None)])
        array = self._kept[WEIGHT_PARTS.index(part) - 1]
        self._has_read(part)
        return array

    def _encoded(self, store: Store, known: Sequence[np.ndarray] | None) -> Iterator[Sequence[np.ndarray]]:
        try:
            yield from self.weight.encoded(self.axis, store, known)
        except ValueError as error:
            raise self.weight.naming(error, self.axis) from None

    def _keep(self, found: Sequence[Sequence[np.ndarray]]) -> None:
        self._kept = [np.concatenate(parts, axis=self.axis) for parts in zip(*found)]
        self._left = set(self._named)

    def _has_read(self, part: str) -> None:
        self._left.discard(part)
        if not self._left:
            self._kept = []


class BlockTensor(StreamedTensor):
    """Integers, scales or zero points of a weight in blocks, as DequantizeLinear reads them.

    Attributes:
        encoded: The weight, in parts.
        part: Which of `WEIGHT_PARTS` it is.
    """

    def __init__(self, encoded: EncodedWeight, part: str, dtype: ir.DataType, shape: tuple[int, ...], name: str):
        super().__init__(self._whole, dtype, ir.Shape(shape), name=name)
        self.encoded, self.part = encoded, part

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order, little-endian."""
        if self.part == "integers":
            yield from (part.data for part in self.encoded.integers(as_stored))
        else:
            array = self.encoded.parameters(self.part)
            yield packed_bytes(array, min(self.dtype.bitwidth, 8)).data

    def tobytes(self) -> bytes:
        """Return all bytes, little-endian."""
        return b"".join(self.chunks())

    def _whole(self) -> ir.Tensor:
        if self.part == "integers":
            array = unpacked(np.concatenate(list(self.encoded.integers(as_stored))), self.encoded.weight.format)
        else:
            array = self.encoded.parameters(self.part)
        array = array.astype(self.dtype.numpy(), copy=False).reshape(self.shape.numpy())
        return ir.Tensor(array, dtype=self.dtype, name=self.name)


def block_constants(weight: BlockWeight, name: str, names: FreshNames) -> list[ir.Value]:
    """Return the inputs of the DequantizeLinear of a weight in blocks: integers, scales and, unless 0, zero points.

    Args:
        weight: The weight.
        name: Prefix of their names.
        names: Generator of fresh names.
    """
    format_ = weight.format
    parts = {"integers": names.fresh(f"{name}_{format_.element}"), "scale": names.fresh(f"{name}_scale")}
    if format_.scheme == "asymmetric" or format_.element.startswith("u"):
        parts["zero_point"] = names.fresh(f"{name}_zero_point")
    return [
        ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
        for tensor in weight.constants(parts)
    ]
