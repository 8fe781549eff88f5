"""The error of predicted times: how far mixtures that were measured on this machine are from what was predicted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_tune.journal import Journal

_COVERED = 0.9  # share of the mixtures whose measured time the interval is to hold
_LATEST = 40  # predictions that are learned from
# What mixtures took relative to their prediction where these errors were first measured (bench/mixtures.py): the sum of
# segments does not know all that a whole model loses or saves where one engine hands over to another. They count until
# there are as many of one's own.
_ELSEWHERE = (
    0.57, 0.68, 0.69, 0.72, 0.79, 0.84, 0.87, 0.91, 0.92, 0.92, 0.97, 1.0, 1.02, 1.02, 1.05, 1.07, 1.08, 1.1,
    1.14, 1.15, 1.2, 1.23, 1.35, 1.43, 1.44, 1.59, 1.59, 1.74,
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
        in n + 1, whatever their distribution.
        """
        own = self.ratios
        ratios = sorted([*own, *_ELSEWHERE] if len(own) < len(_ELSEWHERE) else own)
        outside = math.floor((len(ratios) + 1) * (1 - _COVERED) / 2)
        low, high = (ratios[outside - 1], ratios[-outside]) if outside else (ratios[0], ratios[-1])
        return Prediction(predicted, predicted * min(low, 1.0), predicted * max(high, 1.0))

    def learn(self, name: str, predicted: float, measured: float) -> None:
        """Record what a mixture took."""
        self._journal.record("prediction", name, predicted=predicted, measured=measured)
