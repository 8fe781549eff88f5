"""Error metrics between two outputs, accumulated over batches."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


N = TypeVar("N", int, float)
Findings = Literal["rows", "lists", "places"]

UNKNOWN, LEFT_OUT = -1, -100
"""Labels of rows without a known answer, and of rows that are not compared as scores."""

_SMALLEST = 1e-15  # relative to the signal; float32 cannot distinguish less from zero
_NO_SHARE = 1e-30
_SIGNED = ("product", "row_logs")  # sums that may be below 0
_MOST_NATS = 200.0  # of surprise; more is an infinite perplexity in float32
_AT_ONCE = 1 << 20  # elements whose exponentials are held
# An all-zero original has no scale; next to numbers near one, float32 cannot distinguish smaller differences from zero.
_LIKE_ZERO = 2.0**-20
_NUMBERS_UP_TO = 2  # bytes; wider integers are mostly indices and labels
_IS_ONE = 1e-2  # tolerance for low-precision probabilities to sum to one


def told_sum(name: str, value: object, kind: type[N], signed: bool = False) -> N:
    """Return a sum that another process told.

    Args:
        name: Its name.
        value: What was told.
        kind: `int` or `float`.
        signed: Whether it may be below 0.

    Raises:
        ValueError: It is not a finite number, or below 0.
    """
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0 and not signed:
        raise ValueError(f"{name}: {value!r} is not a sum of finite numbers{'' if signed else ' from 0'}")
    return kind(value)


@dataclass(slots=True)
class DifferenceSums:
    """Running sums over pairs of arrays (`original`, `result`) of one output.

    Attributes:
        signal, noise: Sums of squares of the original and of the difference; of integers, those of 8 and 16 bits only.
        product, energy: Sums of products, and of squares of the result, for the cosine.
        max_abs: The largest difference of two finite elements.
        broken: Count of elements that are nonfinite and different; all elements if shapes differ.
        hidden: Count of elements that are NaN in the original, and numbers in the result.
        shapes: The first two shapes that differ, of the original and of the result.
        row_signal, row_logs: Sum of squares of the original over nonzero rows, and sum of the logarithms of each row's
            noise weighted by it; rows run along the last axis.
        signal_rows: Count of these rows.
        margin_signal, margin_noise: For rows of probabilities, sums of squares of the margin and of its difference.
        rows, same_top: Count of rows of scores, and of those whose largest element is at the same index.
        labeled, hits: Count of labeled rows, and of correct ones in original and result.
        surprise: Sums over labeled rows of logits of -log p(label), in original and result; see `perplexity`.
        shared, union: Counts of findings (indices, or rows of them) in both, and in either.
        elements, equal: Count of elements, and of exactly equal ones.
        saturated: Count of floats of the original that are -1, 0 or 1.
        kl, distributions: Sum of the divergences of rows of logits or probabilities in nats, and count of these rows.
    """

    signal: float = 0.0
    noise: float = 0.0
    product: float = 0.0
    energy: float = 0.0
    max_abs: float = 0.0
    broken: int = 0
    hidden: int = 0
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    row_signal: float = 0.0
    row_logs: float = 0.0
    signal_rows: int = 0
    margin_signal: float = 0.0
    margin_noise: float = 0.0
    rows: int = 0
    same_top: int = 0
    labeled: int = 0
    hits: list[int] = field(default_factory=lambda: [0, 0])
    surprise: list[float] = field(default_factory=lambda: [0.0, 0.0])
    shared: int = 0
    union: int = 0
    elements: int = 0
    equal: int = 0
    saturated: int = 0
    kl: float = 0.0
    distributions: int = 0

    def add(
        self,
        original: np.ndarray,
        result: np.ndarray,
        labels: np.ndarray | None = None,
        findings: Findings = "places",
        scores: bool = True,
    ) -> None:
        """Add a pair of arrays; their types may differ.

        Args:
            original: Output of the original.
            result: Output of the result.
            labels: Index of the correct score in every row: `UNKNOWN` where it is unknown, `LEFT_OUT` in rows that
                are no answers, such as those of padding.
            findings: The unit of comparison for indices: `rows` (NonMaxSuppression), members of unordered `lists`
                (TopK), or elements in their `places` (ArgMax).
            scores: Whether rows may be scores; not where the labels say that those of another output are.
        """
        import numpy as np

        if original.shape != result.shape and self.shapes is None:
            self.shapes = original.shape, result.shape
        if original.dtype.kind in "biuOSU":
            # The number of indices may differ; a different rank is a mismatch.
            self.broken += max(original.size, 1) if original.ndim != result.ndim else 0
            self._add_exact(original, result, findings)
            return
        if original.shape != result.shape:
            self.broken += max(original.size, result.size, 1)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            self._add_floats(original.astype(np.float64), result.astype(np.float64), labels, scores)

    def merge(self, other: DifferenceSums) -> None:
        """Add the sums over other batches, which follow these."""
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if one.name == "shapes":
                self.shapes = mine or theirs
            elif one.name == "max_abs":
                self.max_abs = max(mine, theirs)
            elif isinstance(mine, list):
                setattr(self, one.name, [a + b for a, b in zip(mine, theirs, strict=True)])
            else:
                setattr(self, one.name, mine + theirs)

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DifferenceSums:
        """Return what `as_dict` gave.

        Raises:
            ValueError: It is something else.
        """
        found = cls()
        for one in fields(cls):
            value, default = data[one.name], getattr(found, one.name)
            if one.name == "shapes":
                value = value and tuple(tuple(map(int, shape)) for shape in value)
            elif isinstance(default, list):
                value = [told_sum(one.name, each, type(default[0])) for each in value]
            else:
                value = told_sum(one.name, value, type(default), one.name in _SIGNED)
            setattr(found, one.name, value)
        return found

    def _add_floats(self, a: np.ndarray, b: np.ndarray, labels: np.ndarray | None, scores: bool) -> None:
        import numpy as np

        finite = np.isfinite(a) & np.isfinite(b)
        self.broken += int(np.count_nonzero(~finite & (a != b) & ~(np.isnan(a) & np.isnan(b))))
        self.hidden += int(np.count_nonzero(np.isnan(a) & ~np.isnan(b)))
        x, y = a[finite], b[finite]
        self.elements += a.size
        self.equal += int(np.count_nonzero(a == b))
        self.saturated += int(np.count_nonzero((a == 0) | (np.abs(a) == 1)))
        self.signal += float(x @ x)
        self.energy += float(y @ y)
        self.product += float(x @ y)
        difference = y - x
        self.noise += float(difference @ difference)
        self.max_abs = max(self.max_abs, float(np.abs(difference).max(initial=0.0)))
        if not a.size or not finite.all():
            return
        shares = a.ndim in (2, 3) and _are_shares(a)
        left, right = (array.reshape(-1, array.shape[-1] if array.ndim else 1) for array in (a, b))
        truth = labels.reshape(-1) if labels is not None and labels.size == len(left) else None
        if truth is not None and (truth == LEFT_OUT).any():
            judged = truth != LEFT_OUT
            left, right, truth = left[judged], right[judged], truth[judged]
            if not len(left):
                return
        (self._add_margins if shares else self._add_rows)(left, right)
        if scores and a.ndim in (2, 3) and a.shape[-1] > 1:
            self._add_divergences(left, right, shares, truth)
            if shares or a.ndim == 2 or truth is not None:
                self._add_scores(left, right, truth)

    def _add_divergences(self, a: np.ndarray, b: np.ndarray, shares: bool, labels: np.ndarray | None) -> None:
        """Add KL(softmax(a) || softmax(b)) of each row; rows of probabilities are distributions themselves."""
        import numpy as np

        step = max(1, _AT_ONCE // a.shape[1])
        for begin in range(0, len(a), step):
            parts = [array[begin : begin + step] for array in (a, b)]
            if shares:
                parts = [np.log(np.maximum(part, _NO_SHARE)) for part in parts]
            tops = [part - part.max(axis=1, keepdims=True) for part in parts]
            logs = [top - np.log(np.exp(top).sum(axis=1, keepdims=True)) for top in tops]
            # Not below 0, whatever rounding does.
            self.kl += float(np.maximum((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=1), 0.0).sum())
            if labels is not None and not shares:
                answers = labels[begin : begin + step]
                known = np.flatnonzero((answers >= 0) & (answers < a.shape[1]))
                for index, log in enumerate(logs):
                    self.surprise[index] -= float(log[known, answers[known]].sum())
        self.distributions += len(a)

    def _add_margins(self, a: np.ndarray, b: np.ndarray) -> None:
        """Add rows of probabilities; the log ratio of the two largest is the margin before an answer changes.

        Probabilities alone do not show it: if one is near 1, noise that would change other answers does not show.
        """
        import numpy as np

        top = np.argpartition(a, -2, axis=1)[:, -2:]
        margins = [np.log(np.maximum(np.take_along_axis(array, top, 1), _NO_SHARE)) for array in (a, b)]
        exact, given = (logs[:, 1] - logs[:, 0] for logs in margins)
        self.margin_signal += float(exact @ exact)
        self.margin_noise += float((given - exact) @ (given - exact))

    def _add_rows(self, a: np.ndarray, b: np.ndarray) -> None:
        import numpy as np

        signal, noise = np.einsum("ij,ij->i", a, a), np.einsum("ij,ij->i", b - a, b - a)
        rows = signal > 0
        signal, noise = signal[rows], noise[rows]
        if signal.size:
            self.row_signal += float(signal.sum())
            self.row_logs += float(signal @ np.log(np.maximum(noise, _SMALLEST * signal.mean())))
            self.signal_rows += len(signal)

    def _add_scores(self, a: np.ndarray, b: np.ndarray, labels: np.ndarray | None) -> None:
        tops = a.argmax(axis=1), b.argmax(axis=1)
        self.rows += len(a)
        self.same_top += int((tops[0] == tops[1]).sum())
        if labels is not None:
            self.labeled += int((labels >= 0).sum())
            for index, top in enumerate(tops):
                self.hits[index] += int((top == labels).sum())

    def _add_exact(self, a: np.ndarray, b: np.ndarray, findings: Findings) -> None:
        sets = [_found(array, findings) for array in (a, b)]
        self.shared += len(sets[0] & sets[1])
        self.union += len(sets[0] | sets[1])
        self.elements += max(a.size, b.size)
        if a.shape != b.shape:
            return
        self.equal += int((a == b).sum())
        if a.dtype.kind in "biu" and b.dtype.kind in "biu":
            self._add_integers(a, b)

    def _add_integers(self, a: np.ndarray, b: np.ndarray) -> None:
        import numpy as np

        x, y = (array.reshape(-1).astype(np.float64) for array in (a, b))
        self.max_abs = max(self.max_abs, float(np.abs(x - y).max(initial=0.0)))
        if a.dtype.kind != "b" and a.dtype.itemsize <= _NUMBERS_UP_TO:
            self.signal += float(x @ x)
            self.noise += float((x - y) @ (x - y))

    @property
    def snr_db(self) -> float:
        """Return the signal-to-noise ratio in decibels.

        Infinite if nothing differs, or if the original is zero and the result is zero to within float32 precision; -inf
        if broken, or if only the original is zero.
        """
        if self.broken:
            return -math.inf
        if self.noise == 0 or not self.signal and self.max_abs <= _LIKE_ZERO:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def typical_snr_db(self) -> float:
        """Return the SNR of a typical row, robust against a few bad rows.

        If answers change, the affected rows cause nearly all of the noise; this figure shows how close all rows are to
        changing. For rows of probabilities it is measured on margins (see `_add_margins`); for other outputs the noise
        is a geometric mean over rows.
        """
        if self.broken or self.noise == 0:
            return self.snr_db
        if self.margin_signal:
            return 10 * math.log10(self.margin_signal / max(self.margin_noise, _SMALLEST * self.margin_signal))
        if not self.row_signal:
            return self.snr_db
        return 10 * (math.log10(self.row_signal / self.signal_rows) - self.row_logs / self.row_signal / math.log(10))

    @property
    def perplexity(self) -> tuple[float, float] | None:
        """Return the perplexity of the labels under the logits of original and result; None without labeled rows."""
        if not self.labeled or not any(self.surprise):
            return None
        return math.exp(self.surprise[0] / self.labeled), math.exp(min(self.surprise[1] / self.labeled, _MOST_NATS))

    @property
    def cosine(self) -> float:
        """Return the cosine of the angle between both outputs; 1 if both are zero (see `snr_db`)."""
        norm = math.sqrt(self.signal * self.energy)
        return self.product / norm if norm else float(self.snr_db == math.inf)


def _are_shares(array: np.ndarray) -> bool:
    """Check whether every row along the last axis is a distribution like a Softmax result, hence a row of scores."""
    sums = array.sum(axis=-1)
    return array.shape[-1] > 1 and array.size > 0 and array.min() >= 0 and bool((abs(sums - 1) <= _IS_ONE).all())


def _found(array: np.ndarray, findings: Findings) -> set:
    """Return the findings in an array of indices."""
    if array.ndim == 0 or findings == "places":
        return set(enumerate(array.reshape(-1).tolist()))
    rows = array.reshape(-1, array.shape[-1]).tolist()
    if findings == "rows":
        return set(map(tuple, rows))
    return {(place, item) for place, row in enumerate(rows) for item in row}


def decibels_text(snr_db: float) -> str:
    """Format an SNR: `42.1 dB`, `exact` or `broken`."""
    return "exact" if snr_db == math.inf else "broken" if snr_db == -math.inf else f"{snr_db:.1f} dB"


def plain_decibels(snr_db: float) -> float | str:
    """Return an SNR as JSON has it, which knows no infinity."""
    return round(snr_db, 3) if math.isfinite(snr_db) else "inf" if snr_db > 0 else "-inf"
