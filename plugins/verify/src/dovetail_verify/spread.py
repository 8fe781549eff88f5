"""The spread of an output's accuracy between batches, and what a similar batch is unlikely to fall below."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_verify.metrics import DifferenceSums
    from dovetail_verify.output_comparison import OutputComparison


_ENOUGH = 9  # batches; the next one is below all of n with probability 1 / (n + 1), for any distribution
_SIGMAS = 1.3  # standard deviations; nine in ten samples of a normal distribution lie above the mean minus this
_MOST = 200.0  # dB; beyond float64 precision
_DRAWS = 400  # with the same random numbers for each request, so that it gives the same result
_UNFAVORABLE = 20  # of as many draws one is worse; batches that were not seen are worse in more of them
_MOST_DRAWN = 1000  # batches of a draw; what more of them have together differs by less than the seen ones tell
_FAINT = 0.1  # fraction of the mean signal below which a batch counts as silence, whose SNR says little


@dataclass
class Spread:
    """Signal and noise of one output by batch.

    Attributes:
        batches: Signal and noise of each batch.
        seen: Total signal and noise so far.
    """

    batches: list[tuple[float, float]] = field(default_factory=list)
    seen: tuple[float, float] = (0.0, 0.0)

    def add(self, total: DifferenceSums) -> None:
        """Add a batch: the increase of the sums over all batches."""
        signal, noise = total.signal, total.noise
        self.batches.append((signal - self.seen[0], max(noise - self.seen[1], 0.0)))
        self.seen = signal, noise

    def low_snr_db(self, others: float = 0.0) -> float | None:
        """Return an SNR that other batches are likely to reach; None without signal.

        A single batch: the next of n batches is worse than the k worst of them with a probability of k / (n + 1). With
        fewer than nine, the figure is also at most the mean minus their downward deviation: better batches are no
        reason to expect worse ones; nothing else is known of so few, whatever number it is for.

        Several batches together: drawn from nine or more that were drawn from those seen, because what these have in
        common is chance as well; 19 of 20 draws reach the figure.

        Args:
            others: How many other batches it is for, as a multiple of those seen; 0 for a single one.
        """
        mean = self.seen[0] / max(len(self.batches), 1)
        if not mean > 0:
            return None
        found = self._of_batches(mean)
        middle = sum(found) / len(found)
        if not 1 < len(found) < _ENOUGH:
            together = min(round(others * len(found)), _MOST_DRAWN)
            if len(found) > 1 and together > 1:
                return self._drawn(mean, together)
            return sorted(found)[max((len(found) + 1) // (_ENOUGH + 1) - 1, 0)]
        deviation = math.sqrt(sum(min(one - middle, 0.0) ** 2 for one in found) / (len(found) - 1))
        return min(*found, middle - _SIGMAS * deviation)

    def _drawn(self, mean: float, together: int) -> float:
        """Return the SNR that all but one of twenty draws of several batches reach."""
        import numpy as np

        numbers, count = np.random.default_rng(0), min(len(self.batches), _MOST_DRAWN)
        seen = numbers.integers(len(self.batches), size=(_DRAWS, count))
        drawn = np.take_along_axis(seen, numbers.integers(count, size=(_DRAWS, together)), axis=1)
        signal, noise = (column[drawn].sum(axis=1) for column in np.array(self.batches, np.float64).T)
        found = sorted(map(_decibels, np.maximum(signal, _FAINT * mean * together).tolist(), noise.tolist()))
        return found[_DRAWS // _UNFAVORABLE]

    @property
    def deviation_db(self) -> float:
        """Standard deviation of the batches' SNR in decibels; 0 for fewer than two, or without signal."""
        mean = self.seen[0] / max(len(self.batches), 1)
        if not mean > 0 or len(self.batches) < 2:
            return 0.0
        found = self._of_batches(mean)
        middle = sum(found) / len(found)
        return math.sqrt(sum((one - middle) ** 2 for one in found) / (len(found) - 1))

    def _of_batches(self, mean: float) -> list[float]:
        return [_decibels(max(signal, _FAINT * mean), noise) for signal, noise in self.batches]

    def applied(self, output: OutputComparison, others: float = 0.0) -> OutputComparison:
        """Return the figures of an output for an unfavorable batch, or several; see `low_snr_db`.

        The noise grows by one factor in all figures, and 1 - cosine with it. The largest difference is already that of
        the worst batch; top-1 fractions remain those of all batches, since a batch may be a single row.
        """
        low = self.low_snr_db(others)
        if output.snr_db is None or output.cosine is None or output.broken or low is None or not low < output.snr_db:
            return output
        typical, lost = output.typical_snr_db, output.snr_db - low
        if output.snr_db == math.inf:
            return output
        cosine = 1 - (1 - output.cosine) * 10 ** (lost / 10)
        return replace(
            output, snr_db=low, cosine=max(cosine, -1.0), typical_snr_db=typical if typical is None else typical - lost,
            kl=None if output.kl is None else output.kl * 10 ** (lost / 10),
            perplexity=_risen(output.perplexity, 10 ** (lost / 10)),
        )  # fmt: skip


def _risen(perplexity: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    """Return perplexities whose rise is scaled by a factor; a fall stays as it is."""
    if perplexity is None or perplexity[1] <= perplexity[0]:
        return perplexity
    return perplexity[0], perplexity[0] + (perplexity[1] - perplexity[0]) * factor


def _decibels(signal: float, noise: float) -> float:
    return min(10 * math.log10(signal / noise), _MOST) if noise > 0 else _MOST
