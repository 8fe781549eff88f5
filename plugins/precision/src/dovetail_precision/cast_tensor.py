"""A weight in another float type, converted chunk by chunk when it is read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from dovetail_precision.ordered_map import ordered_map
from dovetail_precision.rounding import Losses, converter

_PIECE = 1 << 18  # elements: what a core's second-level cache holds in float32


class CastTensor(ir.LazyTensor):
    """`source` rounded to `dtype`, to nearest even. Finite values stay finite: overflow is clamped.

    Attributes:
        source: The tensor to convert.
        sentinel_share: What +-FLT_MAX becomes, as a fraction of the largest finite value of `dtype`.
        losses: Counts of clamped and flushed elements of the last conversion; None before the first.
    """

    def __init__(self, source: ir.TensorProtocol, dtype: ir.DataType, name: str, sentinel_share: float = 1.0):
        super().__init__(self._whole, dtype, ir.Shape(source.shape.numpy()), name=name)
        self.source = source
        self.sentinel_share = sentinel_share
        self.losses: Losses | None = None

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield the converted elements in order, `_PIECE` at a time."""
        losses = Losses()
        flat = self.source.numpy().reshape(-1)
        convert = converter(self.dtype.numpy(), self.sentinel_share)
        for piece, lost in ordered_map(
            convert, (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
        ):
            losses += lost
            yield piece
        self.losses = losses

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in order, little-endian, chunk by chunk."""
        for piece in self.pieces():
            yield piece.view(np.uint8).data

    def _whole(self) -> ir.Tensor:
        if 0 < self.size <= _PIECE:
            (out,) = self.pieces()
            return ir.Tensor(out.reshape(self.shape.numpy()), dtype=self.dtype, name=self.name)
        out = np.empty(self.size, self.dtype.numpy())
        position = 0
        for piece in self.pieces():
            out[position : position + piece.size] = piece
            position += piece.size
        return ir.Tensor(out.reshape(self.shape.numpy()), dtype=self.dtype, name=self.name)
