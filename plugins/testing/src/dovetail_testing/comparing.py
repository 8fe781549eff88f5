"""How far one result is from another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dovetail_testing.held import Held


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two values.

    Attributes:
        exact: Whether every element is the same, once the expected one is rounded as the result is held.
        share: The largest difference of two elements, as a share of the largest magnitude that is expected (or of one,
            where that is zero); 0 where all are the same.
        broken: Why the two cannot be compared: another shape, type or number, or elements that are not finite in one
            alone. Empty if they can.
    """

    exact: bool = True
    share: float = 0.0
    broken: str = ""


def compared(result: Any, expected: Any, held: Held | None = None) -> Difference:
    """Compare a result with what is expected: a tensor, a sequence, or None for an optional that is empty.

    Args:
        result: What was computed.
        expected: What the reference computed.
        held: The narrower format in which the result is held, if it is.
    """
    if result is None or expected is None:
        return Difference() if result is expected else _broken("only one of both results is there")
    if isinstance(expected, Sequence) and not isinstance(expected, (str, bytes)):
        return _sequences(result, expected)
    a, b = _readable(np.asarray(result)), _readable(np.asarray(expected))
    if a.shape != b.shape:
        return _broken(f"its shape is {list(a.shape)}, the reference gives {list(b.shape)}")
    if b.dtype.kind in "OSU":
        same = a.astype(str) == b.astype(str)
        return Difference() if same.all() else _broken(f"{int(np.count_nonzero(~same))} texts differ")
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        # Integers of 64 bits are no floats; their difference may be none of theirs either.
        exact = bool(np.array_equal(a, b))
        return Difference() if exact else Difference(False, _share(a.astype(np.float64), b.astype(np.float64)))
    wide = np.complex128 if "c" in a.dtype.kind + b.dtype.kind else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = b if held is None else held.rounded(b)
        a, b, rounded = a.astype(wide), b.astype(wide), rounded.astype(wide)
    # A result that is not rounded although it may be is as good.
    if np.all((a == rounded) | (a == b) | (np.isnan(a) & np.isnan(b))):
        return Difference()
    strange = ~np.isfinite(a) & (a != rounded) & ~(np.isnan(a) & np.isnan(b)) | np.isfinite(a) & ~np.isfinite(rounded)
    if strange.any():
        return _broken(f"{int(np.count_nonzero(strange))} elements are infinite or no number in one of both alone")
    return Difference(False, _share(*_finite(a, b)))


def _sequences(result: Any, expected: Sequence[Any]) -> Difference:
    if not isinstance(result, Sequence) or len(result) != len(expected):
        length = len(result) if isinstance(result, Sequence) else "no"
        return _broken(f"it has {length} elements, the reference gives {len(expected)}")
    parts = [compared(one, other) for one, other in zip(result, expected, strict=True)]
    broken = next((part.broken for part in parts if part.broken), "")
    return Difference(all(part.exact for part in parts), max((part.share for part in parts), default=0.0), broken)


def _finite(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = np.isfinite(a) & np.isfinite(b)
    return a[both], b[both]


def _share(a: np.ndarray, b: np.ndarray) -> float:
    largest = float(np.abs(b).max(initial=0.0))
    return float(np.abs(a - b).max(initial=0.0)) / (largest or 1.0)


def _readable(array: np.ndarray) -> np.ndarray:
    """An array in a type of NumPy; narrow types of the package ml_dtypes are floats or integers for that."""
    if array.dtype.kind != "V":
        return array
    return array.astype(np.float32) if "float" in array.dtype.name else array.astype(np.int16)


def _broken(why: str) -> Difference:
    return Difference(False, 0.0, why)
