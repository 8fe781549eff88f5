"""The error of predicted times: how far mixtures that were measured on this machine are from what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_tune.journal import Journal

_COVERED = 0.9  # share of the mixtures whose measured time the interval is to hold
_LATEST = 40  # predictions that are learned from
_OWN = 3  # times that a ratio of this machine counts beside those of another one
# What mixtures took relative to their prediction on another machine (bench/mixtures.py), until there are as many of
# one's own.
_ELSEWHERE = (
    0.81, 0.93, 0.95, 0.95, 0.98, 0.98, 1.0, 1.01, 1.01, 1.03, 1.04, 1.07, 1.07, 1.07, 1.08, 1.08, 1.09, 1.11, 1.11,
    1.11, 1.11, 1.12, 1.13, 1.28,
)  # fmt: skip


@dataclass(frozen=True)
class Prediction:
    """A predicted time with the interval that nine of ten mixtures were measured in.

    Attributes:
        median: The predicted time, relative to the baseline's.
        low, high: The interval.
    """

    median: float
    low: float
    high: float

    def holds(self, measured: float) -> bool:
        """Whether a measured time is in the interval."""
        return self.low <= measured <= self.high

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


class PredictionErrors:
    """Learns from trials how wrong predictions are on this machine, and gives predictions an interval.

    Args:
        journal: Keeps predicted and measured times by machine and versions.
    """

    def __init__(self, journal: Journal):
        self._journal = journal

    @property
    def ratios(self) -> list[float]:
        """Measured over predicted times of this machine, the oldest first."""
        entries = self._journal.entries("prediction")
        return [entry["measured"] / entry["predicted"] for entry in entries][-_LATEST:]

    def interval(self, predicted: float) -> Prediction:
        """Return a predicted time with its interval.

        As many of the ratios lie outside as the next one may: its rank among n others is any with a probability of one
        in n + 1, whatever their distribution. Ratios of this machine count more often than those of another one, and
        alone once there are as many.
        """
        own = self.ratios
        weights = [(ratio, _OWN) for ratio in own]
        if len(own) < len(_ELSEWHERE):
            weights += [(ratio, 1) for ratio in _ELSEWHERE]
        outside = (sum(weight for _, weight in weights) + weights[0][1]) * (1 - _COVERED) / 2
        low, high = _inside(sorted(weights), outside), _inside(sorted(weights, reverse=True), outside)
        return Prediction(predicted, predicted * min(low, 1.0), predicted * max(high, 1.0))

    def learn(self, name: str, predicted: float, measured: float) -> None:
        """Record what a mixture took."""
        self._journal.record("prediction", name, predicted=predicted, measured=measured)


def _inside(weights: Sequence[tuple[float, int]], outside: float) -> float:
    """Return the last of the ratios, from one end, that weigh no more than what may lie outside; at least the first."""
    found, seen = weights[0][0], 0
    for ratio, weight in weights:
        seen += weight
        if seen > outside:
            break
        found = ratio
    return found
