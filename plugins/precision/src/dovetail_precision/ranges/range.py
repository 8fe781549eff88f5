"""A range of values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# Magnitudes from here on are masks, of attention scores for instance, and are left out of ranges.
MASK = 1e30

# The only low type with a narrower range than float32. Deep sums in bfloat16 are a matter of policy.
NARROW = "float16"

LOW_TYPES = frozenset({"bfloat16", "float16"})
"""The low float types."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of the elements of a tensor, without infinities and masks.

    Attributes:
        low, high: The smallest and the largest value.
        smallest: The smallest non-zero magnitude; infinite if all elements are zero, 0 if it is unknown.
        accumulated: The largest magnitude of a partial sum, in any order of summation; None if the values are no sums.
        squares, count: The sum of squares and its number of elements; zero if they were not measured.
    """

    low: float
    high: float
    smallest: float = 0.0
    accumulated: float | None = None
    squares: float = 0.0
    count: int = 0

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def rms(self) -> float:
        """The root mean square; NaN if it was not measured or overflows."""
        known = self.count and math.isfinite(self.squares)
        return math.sqrt(self.squares / self.count) if known else math.nan

    @property
    def bounded(self) -> bool:
        """Whether both ends are known."""
        return math.isfinite(self.magnitude)

    @property
    def distance_from_zero(self) -> float:
        """The smallest distance from zero; 0 if the range contains zero."""
        return max(self.low, -self.high, 0.0)

    def __or__(self, other: Range) -> Range:
        """The union of both ranges."""
        sums = [one.accumulated for one in (self, other) if one.accumulated is not None]
        return Range(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.smallest, other.smallest),
            max(sums, default=None),
            self.squares + other.squares,
            self.count + other.count,
        )

    def with_accumulated(self, accumulated: float) -> Range:
        """Return the range with the largest partial sum set."""
        return replace(self, accumulated=accumulated)

    def as_dict(self) -> dict[str, float]:
        """Return the range as it stands in `ranges.json`."""
        found = {"min": self.low, "max": self.high, "absmax": self.magnitude}
        if math.isfinite(self.smallest):
            found["smallest"] = self.smallest
        if math.isfinite(self.rms):
            found["rms"] = self.rms
        return found if self.accumulated is None else found | {"accumulated": self.accumulated}
