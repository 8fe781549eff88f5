"""Ranges of values, found in arrays chunk by chunk."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np


# Magnitudes from here on are masks, of attention scores for example, and are left out of ranges.
MASK = 1e30

# The only low type with a narrower range than float32. Deep sums in bfloat16 are a matter of policy.
NARROW = "float16"

LOW_TYPES = frozenset({"bfloat16", "float16"})
"""The low float types."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of the elements of a tensor, without infinities and masks.

    Attributes:
        low, high: The smallest and the largest value.
        smallest: The smallest non-zero magnitude; infinite if all elements are zero, 0 if it is unknown.
        accumulated: The largest magnitude of a partial sum, in any order of summation; None if the values are no sums.
        squares, count: The sum of squares and its number of elements; zero if they were not measured.
    """

    low: float
    high: float
    smallest: float = 0.0
    accumulated: float | None = None
    squares: float = 0.0
    count: int = 0

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def rms(self) -> float:
        """The root mean square; NaN if it was not measured or overflows."""
        known = self.count and math.isfinite(self.squares)
        return math.sqrt(self.squares / self.count) if known else math.nan

    @property
    def bounded(self) -> bool:
        """Whether both ends are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def distance_from_zero(self) -> float:
        """The smallest distance from zero; 0 if the range contains zero."""
        return max(self.low, -self.high, 0.0)

    def __or__(self, other: Range) -> Range:
        """Return the union of both ranges."""
        sums = [one.accumulated for one in (self, other) if one.accumulated is not None]
        return Range(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.smallest, other.smallest),
            max(sums, default=None),
            self.squares + other.squares,
            self.count + other.count,
        )

    def with_accumulated(self, accumulated: float) -> Range:
        """Return the range with the largest partial sum set."""
        return replace(self, accumulated=accumulated)

    def as_dict(self) -> dict[str, float]:
        """Return the range as in `ranges.json`."""
        found = {"min": self.low, "max": self.high, "absmax": self.magnitude}
        if math.isfinite(self.smallest):
            found["smallest"] = self.smallest
        if math.isfinite(self.rms):
            found["rms"] = self.rms
        return found if self.accumulated is None else found | {"accumulated": self.accumulated}


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


T = TypeVar("T")
R = TypeVar("R")
_THREADS = min(4, os.cpu_count() or 1)  # more threads saturate memory bandwidth
_AHEAD = 2 * _THREADS


def ordered_map(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield `function(item)` for all `items` in order, computed by threads; `function` should release the GIL.

    At most a few results exist at a time. A stream of one item starts no thread.
    """
    stream = iter(items)
    first = list(islice(stream, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[R]] = deque()
        for item in chain(first, stream):
            waiting.append(pool.submit(function, item))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
