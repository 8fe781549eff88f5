"""Histograms that distinguish only the largest magnitudes, for percentiles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail_quantize.histogram import Histogram

_RESERVE = 128  # how many times as many numbers are distinguished as lie beyond the percentile
_MOST = 1 / 8  # share of the numbers; counting more of them saves no time
_FIRST = 1 << 14  # numbers that are counted before the first choice
_PIECE = 1 << 16  # numbers per step, so that they stay in the cache


class TailHistogram(Histogram):
    """Histogram that distinguishes only the largest magnitudes of a single slice, in a fraction of the time.

    Bins that cannot contain a percentile are merged into one, the inner bin: finding out that a number lies there takes
    a comparison. The outermost bins that together hold 128 times the share beyond the percentile stay as they are. They
    are chosen again whenever twice as many numbers have been seen, and the inner bin only grows.

    The percentile is that of a `Histogram`, unless data that was seen at some point is followed by more than 127 times
    as much of far smaller magnitudes. Then it may be the outer edge of the inner bin, which covers more.

    Formats with several scales, and shares of more than a thousandth, get all bins.

    Args:
        beyond: Share of the numbers whose magnitudes exceed the percentile.
    """

    def __init__(self, beyond: float):
        super().__init__()
        self._share = _RESERVE * beyond
        self._inner = -1  # index of the inner bin; -1 if no bins are merged
        self._chosen_at = 0

    def complete(self) -> Histogram:
        """Return a histogram that distinguishes all bins; no number may have been seen yet."""
        assert not self.number, "bins may have been merged already"
        return Histogram()

    def state(self) -> dict[str, np.ndarray]:
        """Return what was counted; see `Histogram`."""
        found = super().state()
        return {**found, "inner": np.array([self._inner])} if "counts" in found else found

    def _other(self, state: Mapping[str, np.ndarray]) -> Histogram:
        other = TailHistogram(0)
        other._counts, other._exponents = state["counts"].copy(), state["exponents"].copy()
        other._inner = int(state["inner"][0])
        return other

    def _add(self, other: Histogram) -> None:
        """Add the counts of another one; the larger of both inner bins is that of the sum."""
        super()._add(other)
        self._inner = max(self._inner, other._inner if isinstance(other, TailHistogram) else -1)
        if self._inner >= 0:
            middle = self._counts.shape[1] // 2
            inside = self._counts[0, middle - self._inner : middle + self._inner + 1]
            number = inside.sum()
            inside[:] = 0
            inside[-1] = number

    def _count(self, rows: np.ndarray, with_relu: bool) -> None:
        if len(rows) == 1 and self._share <= _MOST:
            self._choose()
        if self._inner < 0:
            super()._count(rows, with_relu)
            return
        outer = self._outer(rows[0])
        self._count_outer(np.abs(outer), rows.size)
        if with_relu:
            self._count_outer(outer[outer > 0], rows.size)

    def _count_outer(self, magnitudes: np.ndarray, number: int) -> None:
        """Count `number` numbers, of which those beyond the inner bin are given."""
        side = self._counts.shape[1] // 2
        index = (magnitudes * np.ldexp(np.float32(side), -self._exponents[0])).astype(np.int64)
        found = np.bincount(index)
        self._counts[0, side : side + found.size] += found
        self._counts[0, side + self._inner] += number - magnitudes.size

    def _choose(self) -> None:
        """Merge the bins that the percentile will not reach, if enough numbers were counted since the last time."""
        least = max(_FIRST, 2 * self._chosen_at)
        if self.number < least or (seen := int(self._counts.sum())) < least:
            return
        self._chosen_at = seen
        magnitudes, _ = self.magnitudes()
        reaching = np.cumsum(magnitudes[0, ::-1])[::-1]
        inner = max(int(np.flatnonzero(reaching >= self._share * seen)[-1]) - 1, 0)
        if inner < self._inner or reaching[inner + 1] > _MOST * seen:
            return
        self._inner = inner
        side = magnitudes.shape[1]
        self._counts[0, side - inner : side + inner + 1] = 0
        self._counts[0, side + inner] = seen - reaching[inner + 1]

    def _outer(self, row: np.ndarray) -> np.ndarray:
        """Return the numbers beyond the inner bin, after widening the range to all numbers."""
        found = []
        room, mask = np.empty(_PIECE, np.float32), np.empty(_PIECE, bool)
        low, high, edge = self._limits()
        for start in range(0, row.size, _PIECE):
            piece = row[start : start + _PIECE]
            smallest, largest = piece.min(), piece.max()
            if not (smallest >= low and largest <= high):  # nor if one is NaN
                self._fit(smallest.reshape(1), largest.reshape(1))
                low, high, edge = self._limits()
            beyond = mask[: piece.size]
            magnitudes = piece if smallest > -edge else np.abs(piece, out=room[: piece.size])
            np.greater_equal(magnitudes, edge, out=beyond)
            found.append(piece.take(beyond.nonzero()[0]))
        return np.concatenate(found)

    def _limits(self) -> tuple[np.float64, np.float64, np.float32]:
        """Return the smallest and the largest number seen, and the outer edge of the inner bin, all exact."""
        low, high = self.range()
        edge = np.ldexp(np.float32(self._inner + 1), self._exponents[0])
        return low[0], high[0], edge / np.float32(self._counts.shape[1] // 2)

    def _widen(self, row: int, exponent: int) -> None:
        self._inner >>= min(exponent - self._exponents[row], 62)
        super()._widen(row, exponent)
