"""A range of values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["LOW_TYPES", "MASK", "NARROW", "Range"]

# What is at least this large is no quantity but a mask, of attention scores say, and has no part in a range.
MASK = 1e30

# The only type whose range matters: bfloat16 has that of float32. How deep its sums go is for policies.
NARROW = "float16"

LOW_TYPES = frozenset({"bfloat16", "float16"})
"""The types with few digits."""


@dataclass(frozen=True, slots=True)
class Range:
    """What is known of the values of a tensor, infinities and masks left out.

    Attributes:
        low, high: The smallest and the largest value.
        smallest: The smallest magnitude above zero; infinite where everything is zero, 0 where it is not known.
        accumulated: The largest magnitude that a sum reaches on the way to a value, in whatever order it is added up;
            None for values that are no sums.
        squares, count: The sum of all squares, and of how many elements; zero where they were not added up.
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
        """The root of the mean square; NaN where it is not known, or too large to be squared."""
        known = self.count and math.isfinite(self.squares)
        return math.sqrt(self.squares / self.count) if known else math.nan

    @property
    def bounded(self) -> bool:
        """Whether both ends are known."""
        return math.isfinite(self.magnitude)

    @property
    def away(self) -> float:
        """How far the nearest value is from zero; 0 where zero may be among them."""
        return max(self.low, -self.high, 0.0)

    def __or__(self, other: Range) -> Range:
        """What holds both."""
        sums = [one.accumulated for one in (self, other) if one.accumulated is not None]
        return Range(
            min(self.low, other.low),
            max(self.high, other.high),
            min(self.smallest, other.smallest),
            max(sums, default=None),
            self.squares + other.squares,
            self.count + other.count,
        )

    def adding_up_to(self, accumulated: float) -> Range:
        """The same range of values that are sums."""
        return replace(self, accumulated=accumulated)

    def as_dict(self) -> dict[str, float]:
        """As plain data."""
        found = {"min": self.low, "max": self.high, "absmax": self.magnitude}
        if math.isfinite(self.smallest):
            found["smallest"] = self.smallest
        if math.isfinite(self.rms):
            found["rms"] = self.rms
        return found if self.accumulated is None else found | {"accumulated": self.accumulated}
