"""Weights with one scale, or one for each index along an axis, quantized part by part when they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.planning import Parameters
from dovetail_onnx.partial_tensors import PartialTensor, parts_of

from dovetail_quantize.integers import quantize_array, spread_extents

if TYPE_CHECKING:
    from dovetail.ir import Format
    from dovetail_onnx.partial_tensors import TensorIndex

_AT_ONCE = 1 << 20  # numbers


class QuantizedTensor(PartialTensor):
    """Lazily quantized tensor, with one scale or one for each index along an axis.

    Attributes:
        source: The tensor to quantize.
    """

    def __init__(self, source: ir.TensorProtocol, format_: Format, parameters: Parameters, name: str):
        extents = spread_extents(source.shape.numpy(), format_, len(parameters.scale))
        super().__init__(self._whole, format_.dtype, ir.Shape(extents), name=name)
        self.source = source
        self._format, self._parameters = format_, parameters

    def parts(self) -> Callable[[TensorIndex], np.ndarray]:
        """Return a function that quantizes a part."""
        if self.shape.numpy() != self.source.shape.numpy():  # a bias that is a single number
            array = self.numpy()
            return lambda index: array[index]
        read, parameters, axis = parts_of(self.source), self._parameters, self._format.axis

        def part(index: TensorIndex) -> np.ndarray:
            at = slice(None) if axis is None else axis % len(self.shape)
            own = parameters
            if isinstance(at, int) and at < len(index):
                own = Parameters(parameters.scale[index[at]], parameters.zero_point[index[at]])
            return quantize_array(read(index), self._format, own)

        return part

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order, little-endian, some rows at a time."""
        shape, bits = self.shape.numpy(), self.dtype.bitwidth
        if not shape or bits < 8:
            yield super().tobytes()
            return
        read = self.parts()
        step = max(1, _AT_ONCE * shape[0] // max(1, math.prod(shape)))
        for start in range(0, shape[0], step):
            yield np.ascontiguousarray(read((slice(start, start + step),))).reshape(-1).view(np.uint8).data

    def _whole(self) -> ir.Tensor:
        array = np.broadcast_to(self.source.numpy(), self.shape.numpy())
        integers = quantized_in_slabs(array, self._format, self._parameters)
        return ir.Tensor(integers, dtype=self.dtype, name=self.name)


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
