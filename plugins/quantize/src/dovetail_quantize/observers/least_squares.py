"""The observer `least-squares`: the scale of a weight with the smallest squared error, for few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.planning import Parameters
from dovetail.plugin import Observer

from dovetail_quantize.integers import columns, integer_bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.ir import Format

_SHRUNK = np.linspace(1.0, 0.72, 15, dtype=np.float32)
"""Ends of the range that are tried, as shares of the largest numbers."""
_AT_ONCE = 1 << 17  # numbers, a few arrays of which fit a core's cache
_SUMMED = 256  # numbers that are added one by one in float32, then the sums
_SMALLEST = float(np.finfo(np.float32).tiny)


class LeastSquares(Observer):
    """Finds the scale, and the zero point, with the smallest squared error of a weight's blocks or channels.

    Definition: a range, from the whole one to 72 percent of it in 15 steps, gives integers; for these integers the
    scale is the one of linear regression, sum(x q) / sum(q q). Every second range is tried, and then, for each block,
    both neighbors of its best one. Without a zero point, the integer on the side with one more of them is given to the
    largest number: in blocks of unsigned integers a scale may therefore be negative. With one, its two neighbors are
    tried, too.

    Source: the search of "k-quants", by Kawrakow, in llama.cpp, 2023, without its weights; the order is our own.

    Args:
        format_: The format to find parameters for.
    """

    def __init__(self, format_: Format):
        self._format = format_
        self._scale: list[np.ndarray] = []
        self._zero: list[np.ndarray] = []

    def update(self, array: np.ndarray) -> None:
        """Find the parameters of a weight.

        Raises:
            ValueError: A number is infinite or NaN, or a second array is given: only weights have this observer.
        """
        self.update_weighted(array, None)

    def update_weighted(self, array: np.ndarray, weights: np.ndarray | None) -> None:
        """Find the parameters of a weight, with squared errors weighted by `weights`, an array of the same shape.

        Raises:
            ValueError: See `update`.
        """
        if self._scale:
            raise ValueError("least-squares is for weights, which are seen once; choose mse for values")
        given = columns(array, self._format)
        if not given.size:
            return
        counting = None if weights is None else columns(weights, self._format)
        step = max(1, _AT_ONCE // given.shape[0])
        for start in range(0, given.shape[1], step):
            part = np.ascontiguousarray(given[:, start : start + step], np.float32)
            if not np.isfinite(part).all():
                raise ValueError("a number is infinite or NaN")
            own = None if counting is None else np.ascontiguousarray(counting[:, start : start + step], np.float32)
            best = _Best(part, own)
            find = self._with_zero_point if self._format.scheme == "asymmetric" else self._without
            scale, zero = find(part, best)
            self._scale.append(scale)
            self._zero.append(zero)

    def parameters(self) -> Parameters:
        """Return the parameters of the weight.

        Raises:
            ValueError: See `arrays`.
        """
        scale, zero = self.arrays()
        return Parameters(tuple(scale.astype(np.float64).tolist()), tuple(zero.astype(np.int64).tolist()))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the scales, in float32, and the zero points: a large weight has millions of them.

        Raises:
            ValueError: No number was seen.
        """
        if not self._scale:
            raise ValueError("no number was seen")
        return np.concatenate(self._scale), np.concatenate(self._zero)

    def _without(self, part: np.ndarray, best: _Best) -> tuple[np.ndarray, np.ndarray]:
        smallest, largest = integer_bounds(self._format)
        zero = (largest + 1) // 2 if smallest == 0 else 0
        low, high = np.float32(smallest - zero), np.float32(largest - zero)
        at = np.argmax(np.abs(part), axis=0)[None]
        extreme = np.take_along_axis(part, at, axis=0)[0]
        end = low if -low > high and self._format.group is not None else high * np.sign(extreme)
        whole = _usable(extreme / np.where(end == 0, 1, end))
        levels = part / whole

        def fit(shrunk: np.ndarray | np.floating) -> None:
            best.fit(whole * shrunk, best.clipped(best.rounded(levels, 1 / shrunk), low, high))

        best.search(fit)
        if -low > high and self._format.group is not None:  # the range without the integer that has no counterpart
            scale = _usable(np.abs(extreme) / high)
            best.fit(scale, best.clipped(best.rounded(part, 1 / scale), low, high))
        return best.scale, np.full(part.shape[1], zero)

    def _with_zero_point(self, part: np.ndarray, best: _Best) -> tuple[np.ndarray, np.ndarray]:
        smallest, largest = (np.float32(end) for end in integer_bounds(self._format))
        low, high = np.minimum(part.min(axis=0), 0), np.maximum(part.max(axis=0), 0)

        def fit(shrunk: np.ndarray | np.floating) -> None:
            scale = np.maximum((high - low) * shrunk / (largest - smallest), _SMALLEST)
            middle = np.rint(smallest - low * shrunk / scale)
            rounded = best.rounded(part, 1 / scale)
            for step in (-1, 0, 1):
                zero = np.clip(middle + np.float32(step), smallest, largest)
                best.fit(scale, best.clipped(rounded, smallest - zero, largest - zero), zero)

        best.search(fit)
        return best.scale, best.zero


def _usable(scale: np.ndarray) -> np.ndarray:
    """Return scales with 1 in place of those that nothing can be divided by."""
    return np.where(np.abs(scale) < _SMALLEST, np.float32(1), scale)


class _Best:
    """The best scale of every block so far; squared errors count by `weights`, where these are given.

    A block is a column, so that NumPy adds up whole rows.

    Attributes:
        scale: The scales, float32.
        zero: Their zero points.
    """

    def __init__(self, part: np.ndarray, weights: np.ndarray | None = None):
        self._part, self._weights = part, weights
        self._rounded, self._clipped = np.empty_like(part), np.empty_like(part)
        self._counted = self._clipped if weights is None else np.empty_like(part)
        blocks = part.shape[1]
        self.scale, self.zero = np.ones(blocks, np.float32), np.zeros(blocks, np.float32)
        self._explained = np.full(blocks, -1, np.float32)

    def search(self, fit: Callable[[np.ndarray | np.floating], None]) -> None:
        """Try ranges: every second one, from the largest on, and then the neighbors of the best one of each block.

        Args:
            fit: Tries a range, or one for each block, given as shares of the whole one.
        """
        best = np.zeros(len(self.scale), np.intp)
        for number in range(0, len(_SHRUNK), 2):
            before = self._explained
            fit(_SHRUNK[number])
            best[self._explained > before] = number
        for step in (-1, 1):
            fit(_SHRUNK[np.clip(best + step, 0, len(_SHRUNK) - 1)])

    def rounded(self, numbers: np.ndarray, factor: np.ndarray | np.floating) -> np.ndarray:
        """Return numbers times a factor, rounded; the next call overwrites it."""
        np.multiply(numbers, factor, out=self._rounded)
        return np.rint(self._rounded, out=self._rounded)

    def clipped(self, rounded: np.ndarray, low: np.ndarray | np.floating, high: np.ndarray | np.floating) -> np.ndarray:
        """Return integers within bounds; the next call overwrites them."""
        return np.clip(rounded, low, high, out=self._clipped)

    def fit(self, scale: np.ndarray, integers: np.ndarray, zero: np.ndarray | None = None) -> None:
        """Keep the scale of regression for some integers if it explains more of a block."""
        if self._weights is not None:
            np.multiply(integers, self._weights, out=self._counted)
        product, square = _sums_of_products(self._part, self._counted), _sums_of_products(integers, self._counted)
        fitted = _usable(np.where(square > 0, product / np.where(square > 0, square, 1), scale))
        explained = product * fitted
        better = explained > self._explained
        self._explained = np.where(better, explained, self._explained)
        self.scale = np.where(better, fitted, self.scale)
        if zero is not None:
            self.zero = np.where(better, zero, self.zero)


def _sums_of_products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the sum of products along every column."""
    if len(one) <= _SUMMED:
        return np.einsum("ij,ij->j", one, other)
    parts = (slice(start, start + _SUMMED) for start in range(0, len(one), _SUMMED))
    return np.add.reduce([np.einsum("ij,ij->j", one[rows], other[rows]) for rows in parts])
