"""The observer `mse`: the range with the smallest mean squared error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.histogram import Points
from dovetail_quantize.integers import bounds, parameters_of_range, scales_of_range
from dovetail_quantize.observers.counting import CountingObserver

if TYPE_CHECKING:
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters


_PER_OCTAVE, _OCTAVES = 8, 8  # candidates
_FINER = 2.0 ** (np.arange(-3, 4) / (4 * _PER_OCTAVE))
_AT_ONCE = 1 << 16  # numbers that are rounded at the same time
_GAIN = 0.01  # share of the error; the middle of a bin stands for its numbers only to within less


class MeanSquaredError(CountingObserver):
    """Covers the range in which rounding and saturation together cost least.

    Definition: of ranges that are `minmax`'s shrunk toward zero, the one whose integers have the smallest mean squared
    difference from the numbers. Candidates are eight per octave over eight octaves, and then finer ones around the
    best; with a zero point, both ends together at first, and then each by itself. A candidate replaces `minmax` if it
    is better, in a histogram by a percent at least. Where only maxima of a value are read, these are the numbers.

    Source: Sung et al., "Resiliency of Deep Neural Networks under Quantization", 2015; Choukroun et al., "Low-bit
    Quantization of Neural Networks for Efficient Inference", 2019.

    Args:
        format_: The format that parameters are wanted for.
    """

    follows_maxima = True

    def parameters(self) -> Parameters:
        """The parameters for what was seen.

        Raises:
            ValueError: Nothing was seen.
        """
        points = self._seen.points()
        low, high = (np.minimum(self._seen.range()[0], 0), np.maximum(self._seen.range()[1], 0))
        search = _Search(self._format, points, low, high)
        coarse = 2.0 ** -(np.arange(1, _PER_OCTAVE * _OCTAVES) / _PER_OCTAVE)
        if self._format.scheme != "asymmetric":
            search.shrink(coarse, coarse)
            search.refine(1, 1)
        else:
            search.shrink(coarse, coarse)
            search.shrink(coarse, None)
            search.shrink(None, coarse)
            search.refine(1, 0)
            search.refine(0, 1)
        return parameters_of_range(self._format, *search.best())


class _Search:
    """The best range so far of each slice."""

    def __init__(self, format_: Format, points: Points, low: np.ndarray, high: np.ndarray):
        self._format, self._points, self._whole = format_, points, (low, high)
        self._low, self._high = low, high
        self._error = self._all = self._errors(low, high)

    def shrink(self, low: np.ndarray | None, high: np.ndarray | None) -> None:
        """Try shares of the whole range; None leaves an end where it is."""
        self._try(
            self._low[None] if low is None else self._whole[0] * low[:, None],
            self._high[None] if high is None else self._whole[1] * high[:, None],
        )

    def refine(self, low: int, high: int) -> None:
        """Try ranges around the best; an end with 0 stays."""
        factors = _FINER[:, None]
        self._try(
            np.maximum(self._low * factors**low, self._whole[0]),
            np.minimum(self._high * factors**high, self._whole[1]),
        )

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of each slice."""
        gain = 0.0 if self._points.exact else _GAIN
        better = self._error < self._all * (1 - gain)
        return np.where(better, self._low, self._whole[0]), np.where(better, self._high, self._whole[1])

    def _try(self, lows: np.ndarray, highs: np.ndarray) -> None:
        """Try ranges: one row per candidate with one number per slice, as many at once as memory is set aside for."""
        lows, highs = np.broadcast_arrays(lows, highs)
        at_once = max(1, _AT_ONCE // max(1, self._points.positions.size))
        for start in range(0, len(lows), at_once):
            low, high = lows[start : start + at_once], highs[start : start + at_once]
            errors = self._errors(low, high)
            best = np.argmin(errors, axis=0)[None]
            error, low, high = (np.take_along_axis(each, best, axis=0)[0] for each in (errors, low, high))
            better = error < self._error
            self._error = np.where(better, error, self._error)
            self._low, self._high = np.where(better, low, self._low), np.where(better, high, self._high)

    def _errors(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The sum of the squared errors of every slice; the ends may have an axis of candidates in front."""
        smallest, largest = bounds(self._format)
        scale, zero = (part[..., None] for part in scales_of_range(self._format, low, high))
        numbers, counts, _ = self._points
        integers = np.clip(np.rint(numbers / scale) + zero, smallest, largest)
        return np.sum(((integers - zero) * scale - numbers) ** 2 * counts, axis=-1)
