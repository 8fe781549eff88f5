"""Weights that are quantized in slabs when they are written; those with a scale per block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.planning import Parameters

from dovetail_quantize.integers import quantize_array, scale_shape

if TYPE_CHECKING:
    from dovetail.ir import Format, FreshNames

_AT_ONCE = 1 << 20  # numbers


class BlockWeight:
    """A weight in a format with a scale per group of elements.

    A model of a billion weights has tens of millions of scales, so these are not kept as `Parameters`: integers,
    scales and zero points are lazy tensors, computed when they are written. Reading one of them computes all three, and
    the other two are kept until they are read as well.

    Args:
        source: The weight.
        format_: The format; it has a group.
        observed: Returns the parameters of a part of the weight, a slab along its first axis.
        floats: Element type of the scales.
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        format_: Format,
        observed: Callable[[np.ndarray], Parameters],
        floats: ir.DataType,
    ):
        self._source, self._format, self._observed, self._floats = source, format_, observed, floats
        self._kept: dict[str, ir.Tensor] = {}

    def constants(self, names: Mapping[str, str]) -> list[ir.LazyTensor]:
        """Return the parts that are named: `integers`, as the weight, and `scale` and `zero_point`, one per block."""
        return [self._lazy(part, name) for part, name in names.items()]

    def _lazy(self, part: str, name: str) -> ir.LazyTensor:
        shape = tuple(self._source.shape.numpy())
        shape = shape if part == "integers" else scale_shape(self._format, shape)
        dtype = self._floats if part == "scale" else self._format.dtype

        def read() -> ir.Tensor:
            if part not in self._kept:
                self._kept = self._computed()
            return self._kept.pop(part)

        return ir.LazyTensor(read, dtype, ir.Shape(shape), name=name)

    def _computed(self) -> dict[str, ir.Tensor]:
        shape, kind = tuple(self._source.shape.numpy()), self._format.dtype.numpy()
        blocks = scale_shape(self._format, shape)
        integers, zero = np.empty(shape, kind), np.empty(blocks, kind)
        scale = np.empty(blocks, self._floats.numpy())
        for rows, of_scales, slab in _slabs(self._source.numpy(), self._format):
            found = self._observed(slab)
            # The integers must fit the scales that are stored, in the type that they are stored in.
            stored = np.asarray(found.scale, np.float32).astype(scale.dtype)
            kept = Parameters(tuple(stored.astype(np.float64).tolist()), found.zero_point)
            integers[rows] = quantize_array(slab, self._format, kept)
            scale[of_scales] = stored.reshape(scale[of_scales].shape)
            zero[of_scales] = np.asarray(found.zero_point).reshape(zero[of_scales].shape).astype(kind)
        parts = {"integers": integers, "scale": scale, "zero_point": zero}
        return {part: ir.Tensor(array) for part, array in parts.items()}


def quantized_in_slabs(array: np.ndarray, format_: Format, parameters: Parameters) -> np.ndarray:
    """Quantize an array in slabs along its first axis, so that no copies of all of its floats are made."""
    if not array.ndim or format_.group is not None or array.size <= _AT_ONCE:
        return quantize_array(array, format_, parameters)
    integers = np.empty(array.shape, format_.dtype.numpy())
    step = max(1, _AT_ONCE * len(array) // array.size)
    by_row = format_.axis is not None and format_.axis % array.ndim == 0
    for start in range(0, len(array), step):
        rows = slice(start, start + step)
        own = Parameters(*(part[rows] for part in parameters)) if by_row else parameters
        integers[rows] = quantize_array(array[rows], format_, own)
    return integers


def block_constants(
    weight: ir.TensorProtocol,
    format_: Format,
    observed: Callable[[np.ndarray], Parameters],
    floats: ir.DataType,
    name: str,
    names: FreshNames,
) -> list[ir.Value]:
    """Return the inputs of the DequantizeLinear of a weight in blocks: integers, scales and, unless 0, zero points.

    Args:
        weight: The weight.
        format_: The format; it has a group.
        observed: Returns the parameters of a part of the weight, a slab along its first axis.
        floats: Element type of the scales.
        name: Prefix of their names.
        names: Generator of fresh names.
    """
    parts = {"integers": names.fresh(f"{name}_{format_.element}"), "scale": names.fresh(f"{name}_scale")}
    if format_.scheme == "asymmetric" or format_.element.startswith("u"):
        parts["zero_point"] = names.fresh(f"{name}_zero_point")
    return [
        ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
        for tensor in BlockWeight(weight, format_, observed, floats).constants(parts)
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
