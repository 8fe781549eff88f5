"""Observers that clip: `percentile`, `mse` and `kl` look at how often numbers occur."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.plugin import Observer

from dovetail_quantize.histogram import Histogram, Points
from dovetail_quantize.integers import bounds, parameters_of_range, scales_of_range, slices

if TYPE_CHECKING:
    from dovetail.ir import Format
    from dovetail.planning import Parameters


class CountingObserver(Observer):
    """Counts all numbers of every slice in a histogram; what follows from it, each observer says in `parameters`.

    Args:
        format_: The format that parameters are wanted for.
    """

    def __init__(self, format_: Format):
        self._format = format_
        self._seen = Histogram()

    def update(self, array: np.ndarray) -> None:
        """See the numbers of one batch, or a weight.

        Raises:
            ValueError: A number is infinite or NaN, or the array has another number of slices than those before.
        """
        if array.size:
            self._seen.update(slices(array, self._format))

    def share(self, other: CountingObserver) -> None:
        """Look at what another observer of the same format counts, instead of counting by itself."""
        self._seen = other._seen


class Percentile(CountingObserver):
    """Covers a percentage of the numbers of each slice.

    Definition: without a zero point, the range reaches to the smallest magnitude that this percentage of the magnitudes
    does not exceed; with one, each end leaves out half of the rest. In a histogram an end is the outer edge of its bin.
    With fewer numbers than it takes to leave one out (10,000 at 99.99 percent), it is `minmax`; so it is where what is
    covered has nothing but zeros, because the rest is then all that the value says.

    Source: McKinstry et al., "Discovering Low-Precision Networks Close to Full-Precision Networks for Efficient
    Embedded Inference", 2018; Wu et al., "Integer Quantization for Deep Learning Inference: Principles and Empirical
    Evaluation", 2020, section 4.

    Args:
        format_: The format that parameters are wanted for.
        percentile: How much is covered, above 0 and up to 100 percent.
    """

    def __init__(self, format_: Format, percentile: float = 99.99):
        if not 0 < percentile <= 100:
            raise ValueError(f"a percentile of {percentile} is not above 0 and up to 100")
        super().__init__(format_)
        self._share = percentile / 100

    def parameters(self) -> Parameters:
        """The parameters for what was seen.

        Raises:
            ValueError: Nothing was seen.
        """
        low, high = self._seen.range()
        positions, counts, exact = self._seen.points()
        margin = np.zeros(len(low)) if exact else self._seen.bins()[2] / 2
        if self._format.scheme == "asymmetric":
            share = (1 + self._share) / 2
            upper = _outer(_reached(positions, counts, share), margin)
            lower = _outer(_reached(-positions[:, ::-1], counts[:, ::-1], share), margin)
            return self._of_range(np.maximum(-lower, low), np.minimum(upper, high))
        order = np.argsort(np.abs(positions), axis=1, kind="stable")
        magnitudes = np.take_along_axis(np.abs(positions), order, axis=1)
        end = _outer(_reached(magnitudes, np.take_along_axis(counts, order, axis=1), self._share), margin)
        end = np.minimum(end, np.maximum(-low, high))
        return self._of_range(-end, end)

    def _of_range(self, low: np.ndarray, high: np.ndarray) -> Parameters:
        empty = (low >= 0) & (high <= 0)
        smallest, largest = self._seen.range()
        return parameters_of_range(self._format, np.where(empty, smallest, low), np.where(empty, largest, high))


def _outer(middles: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """The upper edges of bins; the bin around zero stays zero."""
    return np.where(middles == 0, 0, middles + margin)


def _reached(positions: np.ndarray, counts: np.ndarray, share: float) -> np.ndarray:
    """The smallest position of each row that `share` of its numbers do not exceed."""
    sums = np.cumsum(counts, axis=1)
    # The share of a count is no whole number, and its rounding error is not one number more.
    wanted = np.ceil(sums[:, -1:] * share - 1e-9 * sums[:, -1:])
    return np.take_along_axis(positions, np.argmax(sums >= wanted, axis=1)[:, None], axis=1)[:, 0]


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


_CANDIDATES = 128
_KEPT = 0.9  # least share of the numbers within a threshold
_FEW = 1024  # numbers per slice; their histogram says little about a distribution


class Entropy(CountingObserver):
    """Covers the range with the smallest Kullback-Leibler divergence between the numbers and their integers.

    Definition: the numbers lie in bins (4096 on each side of zero, 1024 if a format has several scales). For each of
    128 thresholds from the smallest with as many bins as there are integers up to the largest magnitude, P is the
    distribution with everything beyond the threshold in the outermost bins. Q spreads what lies within the threshold
    over as many levels as there are integers in this range, and the sum of a level evenly over those of its bins that
    are not empty. The threshold with the smallest divergence of Q from P wins, the largest of equals. The bin around
    zero does not count, because every format holds zero exactly, and the many zeros behind a Relu would hide the rest.
    With a zero point, both ends are cut at the same magnitude. Thresholds with less than nine tenths of the numbers
    within are left out: where P and Q have one bin, they do not diverge, whatever is lost. Fewer than 1024 numbers say
    nothing about a distribution: they get `minmax`.

    Source: Migacz, "8-bit Inference with TensorRT", GPU Technology Conference 2017.

    Args:
        format_: The format that parameters are wanted for.
    """

    def parameters(self) -> Parameters:
        """The parameters for what was seen.

        Raises:
            ValueError: Nothing was seen.
        """
        low, high = self._seen.range()
        if self._seen.number >= _FEW:
            index, counts, width = self._seen.bins()
            counts = np.where(index == 0, 0, counts)
            smallest, largest = bounds(self._format)
            ends = np.array([_threshold(row, largest - smallest + 1, self._format) for row in counts]) * width
            low, high = np.maximum(low, -ends), np.minimum(high, ends)
        return parameters_of_range(self._format, low, high)


def _threshold(counts: np.ndarray, levels: int, format_: Format) -> float:
    """The best threshold in widths of a bin; infinite if nothing but zeros was counted."""
    used = np.flatnonzero(counts)
    if not used.size:
        return np.inf
    middle = counts.size // 2
    if format_.scheme == "asymmetric":
        # The integers cover only the sides that have numbers.
        sides = bool(used[0] < middle), bool(used[-1] > middle)
    else:
        counts, levels = _folded(counts, middle), levels // 2
        middle, sides = 0, (False, True)
        used = np.flatnonzero(counts)
    reach = int(max(middle - used[0], used[-1] - middle)) + 1
    fewest = min(max(levels // sum(sides), 1), reach)
    thresholds = np.unique(np.linspace(fewest, reach, _CANDIDATES).astype(int))[::-1]
    divergences = []
    for threshold in thresholds:
        first = max(middle - (threshold - 1) * sides[0], 0)
        end = min(middle + (threshold - 1) * sides[1], counts.size - 1) + 1
        if counts[first:end].sum() < _KEPT * counts.sum():
            break  # the following ones are smaller
        divergences.append(_divergence(counts, first, end, levels))
    return float(thresholds[int(np.argmin(divergences))])


def _folded(counts: np.ndarray, middle: int) -> np.ndarray:
    """Counts of magnitudes."""
    folded = counts[middle:].copy()
    folded[1:] += counts[:middle][::-1]
    return folded


def _divergence(counts: np.ndarray, first: int, end: int, levels: int) -> float:
    """The divergence of the bins from `first` up to `end` on so many levels from all bins, cut there."""
    within = counts[first:end].astype(np.float64)
    cut = within.copy()
    cut[0] += counts[:first].sum()
    cut[-1] += counts[end:].sum()
    level = np.arange(within.size) * levels // within.size if within.size > levels else np.arange(within.size)
    sums, bins = np.bincount(level, within), np.bincount(level, within > 0)
    spread = np.where(within > 0, (sums / np.maximum(bins, 1))[level], 0)
    total = spread.sum()
    if not total:
        return np.inf
    expected, found = cut / cut.sum(), spread / total
    inside = cut > 0
    # An empty outermost bin that takes what lies beyond has no counterpart; as much as one number stands for it.
    found = np.where(inside & (found == 0), 1 / cut.sum(), found)
    return float(np.sum(expected[inside] * np.log(expected[inside] / found[inside])))
