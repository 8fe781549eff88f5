"""Round arrays to narrower floats and count the losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np

from dovetail_precision.constant_range import SENTINEL


@dataclass(slots=True)
class Losses:
    """Losses of a conversion, in elements.

    Attributes:
        clamped: Finite values beyond the range, stored as the largest finite value.
        flushed: Non-zero values that became zero.
        non_finite: Infinities and NaNs, which are kept.
    """

    clamped: int = 0
    flushed: int = 0
    non_finite: int = 0

    def __bool__(self) -> bool:
        return bool(self.clamped or self.flushed or self.non_finite)

    def __iadd__(self, other: Losses) -> Losses:
        self.clamped += other.clamped
        self.flushed += other.flushed
        self.non_finite += other.non_finite
        return self

    def __str__(self) -> str:
        texts = {
            "clamped to the range": self.clamped,
            "became zero": self.flushed,
            "infinite or NaN in the source": self.non_finite,
        }
        return ", ".join(f"{number} {text}" for text, number in texts.items() if number)


@cache
def converter(target: np.dtype, sentinel_share: float = 1.0) -> Callable[[np.ndarray], tuple[np.ndarray, Losses]]:
    """Return a function that rounds an array to `target`, to nearest even, and returns the losses with it.

    Args:
        target: The target type.
        sentinel_share: What +-FLT_MAX becomes, as a fraction of the largest finite value of `target`.
    """
    limits = ml_dtypes.finfo(target)
    bits = np.dtype(f"u{target.itemsize}")
    # Without the sign bit, patterns from that of infinity on are infinities and NaNs.
    unsigned = bits.type(np.iinfo(bits).max >> 1)
    infinity = np.array(np.inf, target).view(bits)

    def convert(piece: np.ndarray) -> tuple[np.ndarray, Losses]:
        losses = Losses()
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            result = np.ascontiguousarray(piece).astype(target)
        if not result.size:
            return result, losses
        magnitude = result.view(bits) & unsigned
        if magnitude.max() >= infinity:
            _keep_finite(piece, result, limits.max, sentinel_share, losses)
        if not magnitude.min():
            losses.flushed = int(np.count_nonzero(piece) - np.count_nonzero(magnitude))
        return result, losses

    return convert


def _keep_finite(piece: np.ndarray, result: np.ndarray, largest, sentinel_share: float, losses: Losses) -> None:
    """Clamp finite values that overflowed: a mask of -3.4e38 must not become an infinity that makes NaNs later."""
    finite = np.isfinite(piece)
    losses.non_finite += int(piece.size - np.count_nonzero(finite))
    lost = finite & ~np.isfinite(result)
    losses.clamped += int(np.count_nonzero(lost))
    magnitude = np.where(np.abs(piece[lost]) >= SENTINEL, float(largest) * sentinel_share, float(largest))
    result[lost] = np.copysign(magnitude, piece[lost]).astype(result.dtype)
