"""Comparison of one output of a result with that of the original, in figures and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail_verify.metrics import DifferenceSums


POOR = 20.0  # dB; below this, the noise amplitude exceeds a tenth of the signal's


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Comparison of one output.

    Attributes:
        name: The output's name.
        snr_db: Signal-to-noise ratio of a float output; None for indices.
        cosine: Cosine similarity of a float output, None for indices.
        max_abs: Largest difference; None for strings.
        top1: Fraction of rows of scores whose largest element is the same; None without rows of scores.
        set_agreement: Of an index output, findings in both over findings in either; None for floats.
        equal: Fraction of elements that are exactly equal.
        hits: With labels, the accuracy of original and result.
        non_finite: Count of elements that are nonfinite and different, or missing.
        shapes: The shapes of original and result if they differ.
        typical_snr_db: Signal-to-noise ratio of a typical row of a float output, robust against a few changed answers;
            None for indices.
        answers: Whether rows are known to be scores of answers: they are probabilities, or there are labels.
        kl: Mean divergence of rows of logits or probabilities, in nats; None for outputs of other ranks than 2 and 3.
        agreement_db: For integers, Booleans and strings, the SNR whose share of noise in the amplitude is the share
            of elements (or findings) that differ: 20 dB for a tenth. For integers of 8 and 16 bits, which hold numbers
            rather than indices, the SNR itself where that is higher. None for floats.
        open_because: Why two runs of the original differ in it, such as `random, because 'noise' (RandomNormal) has no
            seed`; empty for an output that it determines. Numbers of the others are not compared.
        hidden: How many of `non_finite` are NaN in the original, and numbers in the result.
        perplexity: Of labels under rows of logits, that of the original and of the result; None without labels.
        saturated: Whether every float of the original is -1, 0 or 1, as behind a Softmax of huge numbers.
    """

    name: str
    snr_db: float | None
    cosine: float | None
    max_abs: float | None
    top1: float | None
    set_agreement: float | None
    equal: float
    hits: tuple[float, float] | None = None
    non_finite: int = 0
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    typical_snr_db: float | None = None
    answers: bool = False
    kl: float | None = None
    agreement_db: float | None = None
    open_because: str = ""
    perplexity: tuple[float, float] | None = None
    hidden: int = 0
    saturated: bool = False

    def left_open(self, because: str) -> OutputComparison:
        """Return the comparison of an output that is not determined: of its shape alone; itself without a reason."""
        broken = self.non_finite if self.shapes else 0
        none = (None, None, None, None, None, 0.0, None)
        return OutputComparison(self.name, *none, broken, self.shapes, open_because=because) if because else self

    @property
    def rated_db(self) -> float:
        """The SNR of floats, and `agreement_db` of anything else; -inf if broken, infinite if it is not compared."""
        if self.open_because and not self.broken:
            return math.inf
        known = self.agreement_db if self.snr_db is None else self.snr_db
        return -math.inf if self.broken or known is None else known

    @property
    def perplexity_rise(self) -> float | None:
        """The relative increase of the perplexity of the labels over the original's; negative if it fell."""
        return self.perplexity and self.perplexity[1] / self.perplexity[0] - 1

    @property
    def disagreement(self) -> str:
        """How many elements differ, of an output of integers, Booleans or strings."""
        return f"{100 * (1 - max(self.equal, self.set_agreement or 0.0)):.1f} % of the elements differ"

    @property
    def broken(self) -> bool:
        """Whether the output is not an approximation of the original: another shape, or its own infinities or NaNs."""
        return self.non_finite > 0

    @property
    def snr_text(self) -> str:
        """The SNR in words: `41.2 dB`, `exact`, `broken`, or that the original has no signal."""
        if self.broken:
            return "broken"
        if self.snr_db == -math.inf:
            return "none (the original is zero)"
        return "exact" if self.snr_db == math.inf else f"{self.snr_db:.1f} dB"

    def line(self) -> str:
        """Return a one-line summary."""
        differ = (
            f"wrong shape: {list(self.shapes[1])}, the original gives {list(self.shapes[0])}" if self.shapes else ""
        )
        if self.open_because:
            return f"{self.name}: {self.open_because}{'; ' * bool(differ)}{differ}"
        if self.set_agreement is not None:
            shares = 100 * self.set_agreement, 100 * self.equal
            line = f"{self.name}: {shares[0]:.1f} % of the findings agree, {shares[1]:.1f} % of the elements"
            return f"{line}; {differ}" if differ and self.broken else line
        if differ:
            return f"{self.name}: {differ}"
        parts = [f"SNR {self.snr_text}", f"cosine {self.cosine:.6f}", f"max abs {self.max_abs:.3g}"]
        if self.non_finite:
            are = "is" if self.non_finite == 1 else "are"
            what = "NaN in the original alone" if self.hidden == self.non_finite else "infinite or NaN, and not in both"
            parts.append(f"{pluralize(self.non_finite, 'element')} {are} {what}")
        if self.top1 is not None:
            # Rows may also be coordinates or an embedding, whose largest element is not an answer.
            what = "top-1 agreement" if self.answers else "the largest element is the same in"
            parts.append(f"{what} {100 * self.top1:.2f} %{'' if self.answers else ' of the rows'}")
        if self.hits is not None:
            parts.append(f"top-1 on the labels {100 * self.hits[0]:.2f} % original, {100 * self.hits[1]:.2f} % result")
        if self.perplexity is not None:
            parts.append(f"perplexity {self.perplexity[0]:.4g} original, {self.perplexity[1]:.4g} result")
        return f"{self.name}: " + ", ".join(parts)


def warning_of(output: OutputComparison) -> str:
    """Return a one-sentence warning about an output; empty if it is fine, or broken and reported elsewhere."""
    if output.broken:
        return ""
    found = []
    if output.snr_db == -math.inf:
        found.append(f"the original is zero, the result differs from it by up to {output.max_abs:.3g}")
    elif output.snr_db is not None and output.snr_db < POOR:
        found.append(f"SNR {output.snr_db:.1f} dB, below {POOR:g} dB")
    elif output.agreement_db is not None and output.agreement_db < POOR:
        found.append(output.disagreement)
    if output.top1 is not None and output.top1 < 1:
        what = "another answer" if output.answers else "another element is the largest"
        found.append(f"{what} in {100 * (1 - output.top1):.2f} % of the rows")
    if output.hits is not None and output.hits[1] < output.hits[0]:
        found.append(f"labels hit in {100 * output.hits[1]:.2f} % of the rows, {100 * output.hits[0]:.2f} % before")
    return f"'{output.name}': {', '.join(found)}" if found else ""


def comparison_of(name: str, total: DifferenceSums) -> OutputComparison:
    """Return the comparison that sums over all batches amount to."""
    exact = total.union > 0 or not (total.signal or total.noise or total.broken or total.elements)
    equal = total.equal / total.elements if total.elements else 1.0
    if exact:
        agreement = total.shared / total.union if total.union else 1.0
        return OutputComparison(
            name, None, None, total.max_abs, None, agreement, equal, None, total.broken, total.shapes,
            agreement_db=_agreement_db(max(agreement, equal), total),
        )  # fmt: skip
    return OutputComparison(
        name,
        total.snr_db,
        total.cosine,
        total.max_abs,
        total.same_top / total.rows if total.rows else None,
        None,
        equal,
        (total.hits[0] / total.labeled, total.hits[1] / total.labeled) if total.labeled else None,
        total.broken,
        total.shapes,
        total.typical_snr_db,
        bool(total.margin_signal or total.labeled),
        total.kl / total.distributions if total.distributions else None,
        perplexity=total.perplexity,
        hidden=total.hidden,
        saturated=0 < total.elements == total.saturated,
    )


def _agreement_db(agreement: float, total: DifferenceSums) -> float:
    """Return `OutputComparison.agreement_db`."""
    found = math.inf if agreement >= 1 else -20 * math.log10(1 - agreement)
    return max(found, total.snr_db) if total.signal and not total.broken and total.shapes is None else found
