"""A weight in another precision, converted piece by piece when its bytes are wanted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from dovetail_precision.rounding import Losses, converter

__all__ = ["CastTensor"]

_PIECE = 1 << 18  # elements: what a core's second-level cache holds in float32


class CastTensor(ir.TensorBase, ir.TensorProtocol):
    """`source` rounded to `dtype`: to nearest even, finite values staying finite.

    Attributes:
        losses: What the last conversion could not keep; None before the first.
    """

    def __init__(self, source: ir.TensorProtocol, dtype: ir.DataType, name: str):
        super().__init__(name=name)
        self._source = source
        self._dtype = dtype
        self.losses: Losses | None = None

    @property
    def dtype(self) -> ir.DataType:
        """The element type after conversion."""
        return self._dtype

    @property
    def shape(self) -> ir.Shape:
        """The shape, that of the source."""
        return self._source.shape

    @property
    def raw(self) -> ir.TensorProtocol:
        """The tensor that is converted."""
        return self._source

    def pieces(self) -> Iterator[np.ndarray]:
        """The converted elements in order, some at a time."""
        losses = Losses()
        flat = self._source.numpy().reshape(-1)
        convert = converter(self._dtype.numpy())
        for start in range(0, flat.size, _PIECE):
            yield convert(flat[start : start + _PIECE], losses)
        self.losses = losses

    def chunks(self) -> Iterator[memoryview]:
        """The bytes in order, little-endian, some at a time."""
        for piece in self.pieces():
            yield piece.view(np.uint8).data

    def numpy(self) -> np.ndarray:
        """The whole tensor; made anew at every call."""
        out = np.empty(self.size, self._dtype.numpy())
        position = 0
        for piece in self.pieces():
            out[position : position + piece.size] = piece
            position += piece.size
        return out.reshape(self.shape.numpy())

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, *, stream=None):
        return self.numpy().__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.numpy().__dlpack_device__()

    def tobytes(self) -> bytes:
        """The bytes, little-endian."""
        return self.numpy().tobytes()
