"""Clipping observers based on histograms: `percentile`, `mse` and `kl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.histogram import Histogram, Points
from dovetail_quantize.integers import integer_bounds, parameters_of_range, scales_of_range, slices
from dovetail_quantize.observers.merging import MergingObserver, State
from dovetail_quantize.tail_histogram import TailHistogram

if TYPE_CHECKING:
    from dovetail.ir import Format
    from dovetail.planning import Parameters


class CountingObserver(MergingObserver):
    """Base class of observers that derive parameters from a histogram of every slice.

    Args:
        format_: The format to find parameters for.
    """

    def __init__(self, format_: Format):
        self._format = format_
        self._seen = Histogram()

    def update(self, array: np.ndarray) -> None:
        """Count the numbers of one batch, or of a weight.

        Raises:
            ValueError: A number is infinite or NaN, or the number of slices changed.
        """
        if array.size:
            self._seen.update(slices(array, self._format))

    def update_with_relu(self, array: np.ndarray) -> None:
        """Count the numbers of one batch and those of its Relu, which follow from them.

        Raises:
            ValueError: See `update`.
        """
        if array.size:
            self._seen.update(slices(array, self._format), with_relu=True)

    def state(self) -> State:
        """Return the histogram; see `MergingObserver`."""
        return self._seen.state()

    def merge(self, state: State) -> None:
        """Count what another process saw; see `MergingObserver`."""
        self._seen.merge(state)

    def share(self, other: CountingObserver) -> None:
        """Use the histogram of another observer of the same format, before data is seen, instead of its own one."""
        self._seen = other._seen = other._seen.complete()


class Percentile(CountingObserver):
    """Covers a percentage of the numbers of each slice.

    Definition: without a zero point, the clipping range extends to the smallest magnitude that this percentage of the
    magnitudes does not exceed; with one, each end clips half of the remainder. In a histogram an end is the outer edge
    of its bin. With too few numbers to clip one (10,000 at 99.99 percent), the result is that of `minmax`. The same
    holds if the covered numbers are all zero, because the remainder is then the only information.

    Without a zero point only the largest magnitudes are resolved: `TailHistogram` says when that matters.

    Source: McKinstry et al., "Discovering Low-Precision Networks Close to Full-Precision Networks for Efficient
    Embedded Inference", 2018; Wu et al., "Integer Quantization for Deep Learning Inference: Principles and Empirical
    Evaluation", 2020, section 4.

    Args:
        format_: The format to find parameters for.
        percentile: Percentage of the numbers to cover, above 0 and up to 100.
    """

    def __init__(self, format_: Format, percentile: float = 99.99):
        if not 0 < percentile <= 100:
            raise ValueError(f"a percentile of {percentile} is not above 0 and up to 100")
        super().__init__(format_)
        self._share = percentile / 100
        if format_.scheme != "asymmetric":
            self._seen = TailHistogram(1 - self._share)

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        low, high = self._seen.range()
        if self._format.scheme != "asymmetric":
            end = np.minimum(self._reached_magnitude(), np.maximum(-low, high))
            return self._of_range(-end, end)
        positions, counts, exact = self._seen.points()
        margin = np.zeros(len(low)) if exact else self._seen.bins()[2] / 2
        share = (1 + self._share) / 2
        upper = _outer(_reached(positions, counts, share), margin)
        lower = _outer(_reached(-positions[:, ::-1], counts[:, ::-1], share), margin)
        return self._of_range(np.maximum(-lower, low), np.minimum(upper, high))

    def _reached_magnitude(self) -> np.ndarray:
        """Return the smallest magnitude of each slice, or outer edge of a bin, that the percentage does not exceed."""
        if (numbers := self._seen.kept()) is not None:
            magnitudes = np.sort(np.abs(numbers), axis=1)
            return _reached(magnitudes, np.ones(magnitudes.shape, np.int64), self._share)
        counts, width = self._seen.magnitudes()
        index = _reached(np.broadcast_to(np.arange(counts.shape[1]), counts.shape), counts, self._share)
        return np.where(index == 0, 0, (index + 1) * width)

    def _of_range(self, low: np.ndarray, high: np.ndarray) -> Parameters:
        empty = (low >= 0) & (high <= 0)
        smallest, largest = self._seen.range()
        return parameters_of_range(self._format, np.where(empty, smallest, low), np.where(empty, largest, high))


def _outer(middles: np.ndarray, margin: np.ndarray) -> np.ndarray:
    """Return the upper edges of bins; the bin around zero stays zero."""
    return np.where(middles == 0, 0, middles + margin)


def _reached(positions: np.ndarray, counts: np.ndarray, share: float) -> np.ndarray:
    """Return the smallest position of each row that `share` of its numbers do not exceed."""
    sums = np.cumsum(counts, axis=1)
    # The product may exceed a whole count by a rounding error, which must not require one more number.
    wanted = np.ceil(sums[:, -1:] * share - 1e-9 * sums[:, -1:])
    return np.take_along_axis(positions, np.argmax(sums >= wanted, axis=1)[:, None], axis=1)[:, 0]


_PER_OCTAVE, _OCTAVES = 8, 8  # candidates
_FINER = 2.0 ** (np.arange(-3, 4) / (4 * _PER_OCTAVE))
_AT_ONCE = 1 << 16  # numbers rounded at a time
_GAIN = 0.01  # relative error reduction; a bin center represents its numbers only to within less


class MeanSquaredError(CountingObserver):
    """Covers the range with the smallest combined error of rounding and saturation.

    Definition: the `minmax` range is shrunk toward zero to the one with the smallest mean squared quantization error.
    Candidates are eight per octave over eight octaves, then finer ones around the best; with a zero point, both ends
    shrink together first, then each alone. A candidate replaces `minmax` if its error is smaller, with a histogram by
    at least one percent. If only the maxima of a value are read, the observer sees these.

    Source: Sung et al., "Resiliency of Deep Neural Networks under Quantization", 2015; Choukroun et al., "Low-bit
    Quantization of Neural Networks for Efficient Inference", 2019.

    Args:
        format_: The format to find parameters for.
    """

    follows_maxima = True

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        points = _counted(self._seen.points())
        low, high = (np.minimum(self._seen.range()[0], 0), np.maximum(self._seen.range()[1], 0))
        search = _Search(self._format, points, low, high)
        coarse = 2.0 ** -(np.arange(1, _PER_OCTAVE * _OCTAVES) / _PER_OCTAVE)
        search.shrink(coarse, coarse)
        if self._format.scheme != "asymmetric" or not ((low != 0) & (high != 0)).any():  # one end stays zero
            search.refine(1, 1)
        else:
            search.shrink(coarse, None)
            search.shrink(None, coarse)
            search.refine(1, 0)
            search.refine(0, 1)
        return parameters_of_range(self._format, *search.best())


def _counted(points: Points) -> Points:
    """Leave out positions that no slice has numbers at; most bins of a Relu's histogram are empty."""
    used = points.counts.any(axis=0)
    return points if used.all() else Points(points.positions[:, used], points.counts[:, used], points.exact)


class _Search:
    """Search for the best clipping range of each slice."""

    def __init__(self, format_: Format, points: Points, low: np.ndarray, high: np.ndarray):
        self._format, self._points, self._whole = format_, points, (low, high)
        self._low, self._high = low, high
        self._error = self._all = self._errors(low, high)

    def shrink(self, low: np.ndarray | None, high: np.ndarray | None) -> None:
        """Try fractions of the whole range; None keeps an end."""
        self._try(
            self._low[None] if low is None else self._whole[0] * low[:, None],
            self._high[None] if high is None else self._whole[1] * high[:, None],
        )

    def refine(self, low: int, high: int) -> None:
        """Try ranges near the best one; an exponent of 0 keeps an end."""
        factors = _FINER[:, None]
        self._try(
            np.maximum(self._low * factors**low, self._whole[0]),
            np.minimum(self._high * factors**high, self._whole[1]),
        )

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of the best range of each slice."""
        gain = 0.0 if self._points.exact else _GAIN
        better = self._error < self._all * (1 - gain)
        return np.where(better, self._low, self._whole[0]), np.where(better, self._high, self._whole[1])

    def _try(self, lows: np.ndarray, highs: np.ndarray) -> None:
        """Try candidate ranges, one row per candidate and one column per slice, in chunks that bound memory."""
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
        """Return the sum of squared errors of every slice; the ends may have a leading axis of candidates."""
        smallest, largest = integer_bounds(self._format)
        scale, zero = (part[..., None] for part in scales_of_range(self._format, low, high))
        numbers, counts, _ = self._points
        errors = numbers / scale
        np.rint(errors, out=errors)
        errors += zero
        np.maximum(errors, smallest, out=errors)
        np.minimum(errors, largest, out=errors)
        errors -= zero
        errors *= scale
        errors -= numbers
        errors *= errors
        errors *= counts
        return np.sum(errors, axis=-1)


_CANDIDATES = 128
_KEPT = 0.9  # least fraction of the numbers within a threshold
_FEW = 1024  # numbers per slice; a histogram of fewer does not represent a distribution
_DIGITS = 12  # of divergences


class Entropy(CountingObserver):
    """Covers the range with the smallest Kullback-Leibler divergence between the numbers and their integers.

    Definition: the numbers lie in bins (4096 on each side of zero, 1024 if a format has several scales). The 128
    thresholds run from the smallest with as many bins as there are integers up to the largest magnitude. For each, P is
    the distribution with everything beyond the threshold added to the outermost bins. Q maps the counts within the
    threshold to as many levels as there are integers in this range, and spreads the sum of a level evenly over its
    nonempty bins. The threshold with the smallest divergence of Q from P wins; of equal ones, the largest. The bin
    around zero does not count, because every format represents zero exactly, and the many zeros after a Relu would
    dominate. With a zero point, both ends are clipped at the same magnitude. Thresholds that cover less than nine
    tenths of the numbers are skipped: with a single bin, P and Q do not diverge, however much is clipped. With fewer
    than 1024 numbers, which do not represent a distribution, the result is that of `minmax`.

    Source: Migacz, "8-bit Inference with TensorRT", GPU Technology Conference 2017.

    Args:
        format_: The format to find parameters for.
    """

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        low, high = self._seen.range()
        if self._seen.number >= _FEW:
            index, counts, width = self._seen.bins()
            counts = np.where(index == 0, 0, counts)
            smallest, largest = integer_bounds(self._format)
            ends = np.array([_threshold(row, largest - smallest + 1, self._format) for row in counts]) * width
            low, high = np.maximum(low, -ends), np.minimum(high, ends)
        return parameters_of_range(self._format, low, high)


def _threshold(counts: np.ndarray, levels: int, format_: Format) -> float:
    """Return the best threshold in bin widths; infinite if only zeros were counted."""
    used = np.flatnonzero(counts)
    if not used.size:
        return np.inf
    middle = counts.size // 2
    if format_.scheme == "asymmetric":
        # The integers cover only the sides of zero that have numbers.
        sides = bool(used[0] < middle), bool(used[-1] > middle)
    else:
        counts, levels = _folded(counts, middle), levels // 2
        middle, sides = 0, (False, True)
        used = np.flatnonzero(counts)
    reach = int(max(middle - used[0], used[-1] - middle)) + 1
    fewest = min(max(levels // sum(sides), 1), reach)
    thresholds = np.unique(np.linspace(fewest, reach, _CANDIDATES).astype(int))[::-1]
    first = np.maximum(middle - (thresholds - 1) * sides[0], 0)
    end = np.minimum(middle + (thresholds - 1) * sides[1], counts.size - 1) + 1
    histogram = _Histogram(counts)
    kept = histogram.numbers(first, end) >= _KEPT * histogram.number  # none or some of the largest thresholds
    # Rounded, so that of equal ones the largest wins, whatever the last bits of sums.
    divergences = np.round(histogram.divergences(first[kept], end[kept], levels), _DIGITS)
    return float(thresholds[int(np.argmin(divergences))])


def _folded(counts: np.ndarray, middle: int) -> np.ndarray:
    """Fold the counts of both signs into counts of magnitudes."""
    folded = counts[middle:].copy()
    folded[1:] += counts[:middle][::-1]
    return folded


class _Histogram:
    """The counts of bins, with sums over all bins before each."""

    def __init__(self, counts: np.ndarray):
        self._counts = counts.astype(np.float64)
        self._numbers_before, self._used_before = _sums_before(counts), _sums_before(counts > 0)
        self._terms_before = _sums_before(_times_log(self._counts))
        self.number = int(self._numbers_before[-1])

    def numbers(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return how many numbers are in bins `first` to `end`."""
        return self._numbers_before[end] - self._numbers_before[first]

    def divergences(self, first: np.ndarray, end: np.ndarray, levels: int) -> np.ndarray:
        """Return the divergence of bins `first` to `end`, quantized to `levels`, from all bins clipped to them.

        With p of a bin its share of all numbers and q that of its level, spread over the used bins, it is the sum of
        p log p, less that of p log q, which is the same for all bins of a level.

        Args:
            first: First bins, one per candidate; some number lies between each and its end.
            end: The bins after the last ones.
            levels: The number of levels.
        """
        inside = self.numbers(first, end)
        size = (end - first)[:, None]
        steps = np.minimum(size, levels)  # fewer bins than levels have a level each
        starts = first[:, None] + np.minimum(-(-np.arange(levels + 1) * size // steps), size)
        numbers = np.diff(self._numbers_before[starts])
        used = np.diff(self._used_before[starts])
        with np.errstate(divide="ignore", invalid="ignore"):
            log_q = np.where(numbers > 0, np.log(numbers / np.maximum(used, 1) / inside[:, None]), 0.0)
        entropy = self._terms_before[end] - self._terms_before[first]  # in numbers instead of shares
        cross = np.sum(numbers * log_q, axis=1)
        # What lies beyond is added to the outermost bins.
        every = np.arange(len(first))
        lower = first, log_q[:, 0], self._numbers_before[first]
        upper = end - 1, log_q[every, steps[:, 0] - 1], self.number - self._numbers_before[end]
        for at, log_of_level, more in (lower, upper):
            own = self._counts[at]
            entropy += _times_log(own + more) - _times_log(own)
            # A bin without numbers of its own has none in Q; it gets the mass of one number.
            cross += more * np.where(own > 0, log_of_level, -np.log(self.number))
        total = float(self.number)
        return (entropy - np.log(total) * total - cross) / total


def _sums_before(numbers: np.ndarray) -> np.ndarray:
    """Return the sum of all numbers before each position, and of all of them."""
    return np.concatenate(([0], np.cumsum(numbers)))


def _times_log(numbers: np.ndarray) -> np.ndarray:
    """Return each number times its logarithm; zero for zero."""
    return numbers * np.log(np.maximum(numbers, 1))
