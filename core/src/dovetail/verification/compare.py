"""Running original and result on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail.verification.data import batches
from dovetail.verification.metrics import Difference

if TYPE_CHECKING:
    import numpy as np

    from dovetail.ir.model import Model

__all__ = ["OutputComparison", "Verification", "verify"]

# Operators whose indices may come in another order and mean the same.
_FINDINGS = {"NonMaxSuppression": "rows", "TopK": "lists"}
Run = Callable[[Mapping[str, "np.ndarray"]], dict[str, "np.ndarray"]]


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """How well one output came out.

    Attributes:
        name: The output.
        snr_db: Signal to noise of a float output, None for indices.
        cosine: Cosine similarity of a float output, None for indices.
        max_abs: Largest difference of a float output, None for indices.
        top1: Share of rows of scores whose largest element is the same; None where there are no rows of scores.
        set_agreement: Of an index output, findings in both over findings in either; None for floats.
        equal: Share of elements that are exactly equal.
        hits: With labels, share of rows that original and result get right.
        non_finite: Elements that are not finite and not the same in both, or missing.
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

    def line(self) -> str:
        """One line for a person."""
        if self.set_agreement is not None:
            shares = 100 * self.set_agreement, 100 * self.equal
            return f"{self.name}: {shares[0]:.1f} % of the findings agree, {shares[1]:.1f} % of the elements"
        parts = [f"SNR {_decibels(self.snr_db)}", f"cosine {self.cosine:.6f}", f"max abs {self.max_abs:.3g}"]
        if self.non_finite:
            parts.append(f"{self.non_finite} elements are infinite or no number, and not in both")
        if self.top1 is not None:
            parts.append(f"top-1 agreement {100 * self.top1:.2f} %")
        if self.hits is not None:
            parts.append(f"top-1 on the labels {100 * self.hits[0]:.2f} % original, {100 * self.hits[1]:.2f} % result")
        return f"{self.name}: " + ", ".join(parts)


@dataclass
class Verification:
    """The comparison of all outputs.

    Attributes:
        outputs: One comparison per output.
        batches: How many runs they sum up.
        random: Whether the inputs were random for want of data.
    """

    outputs: list[OutputComparison] = field(default_factory=list)
    batches: int = 0
    random: bool = False

    @property
    def worst_snr_db(self) -> float | None:
        """The lowest SNR of any float output; None if there is none."""
        return min((output.snr_db for output in self.outputs if output.snr_db is not None), default=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data; infinite SNRs are words, which JSON can hold."""
        outputs = []
        for output in self.outputs:
            data = {name: getattr(output, name) for name in output.__slots__}
            if data["snr_db"] is not None and math.isinf(data["snr_db"]):
                data["snr_db"] = "inf" if data["snr_db"] > 0 else "-inf"
            outputs.append(data)
        return {"batches": self.batches, "random": self.random, "outputs": outputs}

    def lines(self) -> list[str]:
        """Lines for a person: what was run, then one line per output."""
        source = "one batch of random inputs" if self.random else f"{self.batches} batch{'es' * (self.batches != 1)}"
        return [f"verified on {source}:", *(f"  {output.line()}" for output in self.outputs)]

    def short(self) -> str:
        """What the coverage line says."""
        rated = [output for output in self.outputs if output.snr_db is not None]
        if not rated:
            return ""
        worst = min(rated, key=lambda output: output.snr_db)
        return f"SNR {_decibels(worst.snr_db)}" + (f" (worst: '{worst.name}')" if len(rated) > 1 else "")


def verify(
    model: Model,
    original: Run,
    result: Run,
    data: object = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Verification:
    """Run both on every batch of `data` and compare all outputs.

    Args:
        model: The original, for its inputs.
        original: Runs the original.
        result: Runs the result.
        data: See `dovetail.verification.data.batches`.
        seed: For random inputs, where there is no data.
        progress: Told after every batch.
    """
    sums: dict[str, Difference] = {}
    count = 0
    findings = {v.name: _FINDINGS.get(v.producer().op_type, "places") for v in model.graph.outputs if v.producer()}
    for count, (feeds, labels) in enumerate(batches(model, data, seed), start=1):
        ours, theirs = original(feeds), result(feeds)
        for position, (name, array) in enumerate(ours.items()):
            truth = labels.get(name, labels.get("") if position == 0 else None)
            sums.setdefault(name, Difference()).add(array, theirs[name], truth, findings.get(name, "places"))
        if progress:
            progress("verify", count, 0)
    return Verification([_comparison(name, total) for name, total in sums.items()], count, data is None)


def _comparison(name: str, total: Difference) -> OutputComparison:
    exact = total.union > 0 or not (total.signal or total.noise or total.broken or total.elements)
    equal = total.equal / total.elements if total.elements else 1.0
    if exact:
        agreement = total.shared / total.union if total.union else 1.0
        return OutputComparison(name, None, None, None, None, agreement, equal)
    return OutputComparison(
        name,
        total.snr_db,
        total.cosine,
        total.max_abs,
        total.same_top / total.rows if total.rows else None,
        None,
        equal,
        (total.hits[0] / total.labelled, total.hits[1] / total.labelled) if total.labelled else None,
        total.broken,
    )


def _decibels(value: float) -> str:
    return "exact" if value == math.inf else "broken" if value == -math.inf else f"{value:.1f} dB"
