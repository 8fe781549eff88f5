"""Round arrays to narrower floats, count the losses, and say whether a constant survives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir


LARGEST_FINITE = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
# Values from here on are sentinels (no limit, or a masked attention score), not quantities. The largest finite values
# of float32 and bfloat16 are both above it.
SENTINEL = 3.38e38
# Half of float16's smallest subnormal: magnitudes up to here round to zero.
LARGEST_FLUSHED = 2.0**-25
# Larger constants are weights. Their range is checked while they are converted, which reads them anyway.
_MAX_ELEMENTS = 65536  # elements


def fits(tensor: ir.TensorProtocol, name: str) -> bool:
    """Check whether the finite values of `tensor` stay finite in float type `name`, and not all of them round to zero.

    Always true for bfloat16: it has the range of float32, and values in its last half step are clamped.
    """
    return not misfit(tensor, name)


def magnitude_fits(magnitude: float, name: str) -> bool:
    """Check whether a constant with this largest magnitude fits, whatever its other elements are. False for NaN."""
    return LARGEST_FLUSHED < magnitude <= LARGEST_FINITE[name]


def misfit(tensor: ir.TensorProtocol, name: str) -> str:
    """Return why `tensor` does not fit float type `name`, with its largest magnitude; empty if it fits.

    A constant that rounds to zero entirely is an epsilon and does not fit; single elements may round to zero. Sentinels
    such as +-FLT_MAX fit: they are clamped to the narrower type.
    """

    if name != "float16" or tensor.size > _MAX_ELEMENTS:
        return ""
    array = tensor.numpy()
    if array.size and magnitude_fits(max(array.max(), -array.min()), name):
        return ""
    largest = largest_magnitude(tensor)
    if largest > LARGEST_FINITE[name]:
        return f"reaches {largest:.4g}, beyond the {LARGEST_FINITE[name]:.0f} of {name}"
    if 0 < largest <= LARGEST_FLUSHED:
        return f"is at most {largest:.4g}, which rounds to zero in {name}"
    return ""


def largest_magnitude(tensor: ir.TensorProtocol) -> float:
    """Return the largest finite magnitude in `tensor` that is no sentinel; 0 for tensors above 65536 elements."""
    import numpy as np

    if tensor.size > _MAX_ELEMENTS or tensor.dtype.numpy().kind != "f":
        return 0.0
    array = np.abs(tensor.numpy().astype(np.float64))
    array = array[array < SENTINEL]
    return float(array.max()) if array.size else 0.0


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
