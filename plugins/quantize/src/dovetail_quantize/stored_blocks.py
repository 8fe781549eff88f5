"""Weights in blocks whose integers a refinement has found, so that they are not quantized again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail_quantize.block_encoding import packed_bytes, unpacked

if TYPE_CHECKING:
    from dovetail.ir import Format

BLOCKS = "dovetail.blocks"
"""Key of a weight's metadata: `StoredBlocks`, where a refinement has found its integers."""


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
        flat = self.integers.reshape(-1).astype(np.int8)
        return self._replace(integers=packed_bytes(np.pad(flat, (0, -flat.size % (8 // bits))), bits))

    def unpacked(self, format_: Format, shape: tuple[int, ...]) -> np.ndarray:
        """Return the integers of a weight of `shape`, a byte each."""
        return unpacked(self.integers, format_)[: math.prod(shape)].reshape(shape)

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
