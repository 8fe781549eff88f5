"""How figures spread over the batches of data: what another batch is likely to reach."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_verify.compare import OutputComparison
    from dovetail_verify.metrics import Difference


_ENOUGH = 9  # batches: the next one is below all of n with a chance of 1 in n + 1, whatever the distribution
_SIGMAS = 1.3  # of a normal distribution, nine in ten lie above the mean less as much
_MOST = 200.0  # dB; more than float64 tells apart
_FAINT = 0.1  # share of the mean signal below which a batch counts as silence: its own noise over nothing says little


@dataclass
class Spread:
    """The signal and noise of one output in every batch.

    Attributes:
        batches: Signal and noise of each.
        seen: Both in all batches so far.
    """

    batches: list[tuple[float, float]] = field(default_factory=list)
    seen: tuple[float, float] = (0.0, 0.0)

    def add(self, total: Difference) -> None:
        """Add a batch: what the sums over all batches have grown by."""
        signal, noise = total.signal, total.noise
        self.batches.append((signal - self.seen[0], max(noise - self.seen[1], 0.0)))
        self.seen = signal, noise

    @property
    def low_snr_db(self) -> float | None:
        """An SNR that nine of ten batches are likely to reach; None where there is no signal.

        Of enough batches it is that of the worst one. Of a few, it is also at most the mean less what they deviate
        from it downwards: batches that are better than others are no reason to expect worse ones.
        """
        mean = self.seen[0] / max(len(self.batches), 1)
        if not mean > 0:
            return None
        found = [_decibels(max(signal, _FAINT * mean), noise) for signal, noise in self.batches]
        middle = sum(found) / len(found)
        if not 1 < len(found) < _ENOUGH:
            return min(found)
        deviation = math.sqrt(sum(min(one - middle, 0.0) ** 2 for one in found) / (len(found) - 1))
        return min(*found, middle - _SIGMAS * deviation)

    def applied(self, output: OutputComparison) -> OutputComparison:
        """The figures of an output as a batch unlike the average would have them.

        The noise grows by one factor in all of them, and what a cosine lacks of 1 with it. The largest difference is
        that of the worst batch already; shares of rows are those of all batches, since a batch may be a single row.
        """
        low = self.low_snr_db
        if output.snr_db is None or output.cosine is None or output.broken or low is None or not low < output.snr_db:
            return output
        typical, lost = output.typical_snr_db, output.snr_db - low
        if output.snr_db == math.inf:
            return output
        cosine = 1 - (1 - output.cosine) * 10 ** (lost / 10)
        return replace(
            output, snr_db=low, cosine=max(cosine, -1.0), typical_snr_db=typical if typical is None else typical - lost
        )


def _decibels(signal: float, noise: float) -> float:
    return min(10 * math.log10(signal / noise), _MOST) if noise > 0 else _MOST
