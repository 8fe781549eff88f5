"""The range of an array, in chunks that stay in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_precision.ranges.range import MASK, Range

if TYPE_CHECKING:
    import numpy as np


_PIECE = 1 << 16  # elements; 256 KiB fit the L2 cache
_MAGNITUDE = 0x7FFFFFFF  # mask of all bits of a float32 but the sign


def range_of_array(array: np.ndarray, *, squares: bool = True) -> Range | None:
    """Return the range of a float32 array, with its sum of squares if `squares`; None if it is empty.

    Masks (magnitudes from 1e30 on), infinities and NaN count as zero.
    """
    import numpy as np

    if not array.size:
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        found = _range(flat, squares)
        if max(-found.low, found.high) < MASK:  # false for NaN
            return found
        return _range(np.where(np.abs(flat) < MASK, flat, np.float32(0)), squares)


def _range(flat: np.ndarray, squared: bool) -> Range:
    """Return minimum, maximum, smallest non-zero magnitude (infinite if there is none) and the sum of squares.

    Bit patterns of positive floats are ordered like the floats. Subtracting one makes zero the largest pattern.
    """
    import numpy as np

    room = np.empty(min(_PIECE, flat.size), np.uint32)
    low, high, smallest, squares = [], [], 0xFFFFFFFF, 0.0
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        low.append(piece.min())
        high.append(piece.max())
        bits = room[: piece.size]
        np.bitwise_and(piece.view(np.uint32), _MAGNITUDE, out=bits)
        np.subtract(bits, 1, out=bits)
        smallest = min(smallest, int(bits.min()))
        if squared:
            squares += float(np.dot(piece, piece))
    magnitude = float("inf") if smallest == 0xFFFFFFFF else float(np.uint32(smallest + 1).view(np.float32))
    return Range(float(np.min(low)), float(np.max(high)), magnitude, None, squares, flat.size if squared else 0)
