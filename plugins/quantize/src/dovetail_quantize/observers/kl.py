"""The observer `kl`: the range whose integers keep the most information about the distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.integers import bounds, parameters_of_range
from dovetail_quantize.observers.counting import CountingObserver

if TYPE_CHECKING:
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters


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
