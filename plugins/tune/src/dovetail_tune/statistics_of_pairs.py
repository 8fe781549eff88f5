"""Robust statistics of paired timings: the median ratio with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from dovetail.text import pluralize

CONFIDENCE = 0.95
MARGIN = 0.02  # two processes that run the same model differ by up to this, because their memory lies elsewhere
FEWEST_PAIRS = 6  # with fewer, no interval of the median has 95 % confidence
_MANY = 500  # pairs


@dataclass(frozen=True)
class Ratio:
    """The ratio of two times that were measured in pairs.

    Attributes:
        median: Median of the ratios of the pairs.
        low, high: Interval that holds the true median with 95 % confidence; with fewer than six pairs, their range.
        pairs: Number of pairs.
    """

    median: float
    low: float
    high: float
    pairs: int

    @property
    def spread(self) -> float:
        """Half the width of the interval, relative to the median; infinite where too few pairs give none."""
        return (self.high - self.low) / 2 / self.median if self.pairs >= FEWEST_PAIRS else math.inf

    @property
    def is_clear(self) -> bool:
        """Whether there is an interval, and it lies beyond what two processes of one model may differ by."""
        return self.pairs >= FEWEST_PAIRS and (self.low > 1 + MARGIN or self.high < 1 - MARGIN)

    @property
    def text(self) -> str:
        """The median with half the width of the interval, for a table."""
        return f"{self.median:.3f} +-{f'{100 * self.spread:.0f}%' if self.spread < math.inf else '?'}"

    def __str__(self) -> str:
        if self.pairs < FEWEST_PAIRS:
            return f"{self.median:.3f} (spread unknown, of {pluralize(self.pairs, 'pair')})"
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f} in {self.pairs} pairs)"


def ratio_of(times: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return the ratio of `times` to `others`, seconds of the same rounds.

    The interval is that of the sign test, which assumes nothing about the distribution of the noise.
    """
    ratios = sorted(time / other for time, other in zip(times, others, strict=True))
    rank = _rank(len(ratios))
    return Ratio(statistics.median(ratios), ratios[rank], ratios[-1 - rank], len(ratios))


@cache
def _rank(number: int) -> int:
    """Return how many of `number` sorted values lie outside of the interval of the median at each end."""
    if number > _MANY:  # 2^-number would underflow; the binomial distribution is normal by then
        return int((number - statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * number**0.5) / 2)
    outside, rank = 2.0**-number, 0
    total = outside
    while 2 * (total + (following := outside * (number - rank) / (rank + 1))) <= 1 - CONFIDENCE:
        rank, outside, total = rank + 1, following, total + following
    return rank if 2 * total <= 1 - CONFIDENCE and math.isfinite(total) else 0
