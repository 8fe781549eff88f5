"""The observer `least-squares`: the scale of a weight with the smallest squared error, for few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from dovetail.planning import Parameters
from dovetail.plugin import Observer

from dovetail_quantize.integers import bounds, slices

if TYPE_CHECKING:
    from dovetail.ir import Format

    _Numbers: TypeAlias = "np.ndarray | np.floating"

_SHRUNK = np.linspace(1.0, 0.72, 15, dtype=np.float32)
"""Ends of the range that are tried, as shares of the largest numbers."""
_AT_ONCE = 1 << 17  # numbers
_SMALLEST = float(np.finfo(np.float32).tiny)


class LeastSquares(Observer):
    """Finds the scale, and the zero point, with the smallest squared error of a weight's blocks or channels.

    Definition: each of 15 ranges, from the whole one to 72 percent of it, gives integers; for these integers the scale
    is the one of linear regression, sum(x q) / sum(q q). The best of all wins. Without a zero point, the integer on the
    side with one more of them is given to the largest number: in blocks of unsigned integers a scale may therefore be
    negative. With one, its two neighbors are tried, too.

    Source: the search of "k-quants", by Kawrakow, in llama.cpp, 2023, without its weights.

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
        """Find the parameters of a weight, where squared errors count by `weights`, an array of the same shape.

        Raises:
            ValueError: See `update`.
        """
        if self._scale:
            raise ValueError("least-squares is for weights, which are seen once; choose mse for values")
        rows = slices(array, self._format)
        if not rows.size:
            return
        counting = None if weights is None else slices(weights, self._format)
        step = max(1, _AT_ONCE // rows.shape[1])
        for start in range(0, len(rows), step):
            part = np.ascontiguousarray(rows[start : start + step], np.float32)
            if not np.isfinite(part).all():
                raise ValueError("a number is infinite or NaN")
            best = _Best(part, None if counting is None else np.ascontiguousarray(counting[start : start + step]))
            find = self._with_zero_point if self._format.scheme == "asymmetric" else self._without
            scale, zero = find(part, best)
            self._scale.append(scale)
            self._zero.append(zero)

    def parameters(self) -> Parameters:
        """Return the parameters of the weight.

        Raises:
            ValueError: No number was seen.
        """
        if not self._scale:
            raise ValueError("no number was seen")
        scale, zero = np.concatenate(self._scale), np.concatenate(self._zero)
        return Parameters(tuple(scale.astype(np.float64).tolist()), tuple(zero.astype(np.int64).tolist()))

    def _without(self, rows: np.ndarray, best: _Best) -> tuple[np.ndarray, np.ndarray]:
        smallest, largest = bounds(self._format)
        zero = (largest + 1) // 2 if smallest == 0 else 0
        low, high = np.float32(smallest - zero), np.float32(largest - zero)
        at = np.argmax(np.abs(rows), axis=1)[:, None]
        extreme = np.take_along_axis(rows, at, axis=1)
        end = low if -low > high and self._format.group is not None else -high * np.sign(extreme)
        for shrunk in _SHRUNK:
            best.fit(extreme * shrunk / np.where(end == 0, 1, end), np.float32(0), low, high)
        if -low > high and self._format.group is not None:  # the range without the integer that has no counterpart
            best.fit(np.abs(extreme) / high, np.float32(0), low, high)
        return best.scale, np.full(len(rows), zero)

    def _with_zero_point(self, rows: np.ndarray, best: _Best) -> tuple[np.ndarray, np.ndarray]:
        smallest, largest = (np.float32(end) for end in bounds(self._format))
        low = np.minimum(rows.min(axis=1, keepdims=True), 0)
        high = np.maximum(rows.max(axis=1, keepdims=True), 0)
        for shrunk in _SHRUNK:
            scale = np.maximum((high - low) * shrunk / (largest - smallest), _SMALLEST)
            middle = np.rint(smallest - low * shrunk / scale)
            for step in (-1, 0, 1):
                zero = np.clip(middle + np.float32(step), smallest, largest)
                best.fit(scale, zero, smallest - zero, largest - zero)
        return best.scale, best.zero


class _Best:
    """The best scale of every row so far; squared errors count by `weights`, where these are given.

    Attributes:
        scale: The scales, float32.
        zero: Their zero points.
    """

    def __init__(self, rows: np.ndarray, weights: np.ndarray | None = None):
        self._rows, self._weights = rows, weights
        self.scale, self.zero = np.ones(len(rows), np.float32), np.zeros(len(rows), np.float32)
        self._explained = np.full(len(rows), -1, np.float32)

    def fit(self, scale: np.ndarray, zero: _Numbers, low: _Numbers, high: _Numbers) -> None:
        """Quantize the rows with a scale each, and keep the scale of regression where it explains more of them."""
        scale = np.where(np.abs(scale) < _SMALLEST, 1, scale)
        integers = np.clip(np.rint(self._rows / scale), low, high)
        counted = integers if self._weights is None else integers * self._weights
        product = np.einsum("ij,ij->i", self._rows, counted)
        square = np.einsum("ij,ij->i", integers, counted)
        fitted = np.where(square > 0, product / np.maximum(square, 1), scale[:, 0]).astype(np.float32)
        fitted = np.where(np.abs(fitted) < _SMALLEST, np.float32(1), fitted)
        explained = product * fitted
        better = explained > self._explained
        self._explained = np.where(better, explained, self._explained)
        self.scale = np.where(better, fitted, self.scale)
        self.zero = np.where(better, np.broadcast_to(zero, scale.shape)[:, 0], self.zero)
