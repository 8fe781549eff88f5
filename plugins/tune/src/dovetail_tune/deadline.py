"""The time that a tuning may take."""

from __future__ import annotations

import copy
import math
import time

from dovetail.errors import UsageError


class Deadline:
    """A budget of seconds that runs from its creation.

    Args:
        budget: Seconds; None for no limit.

    Raises:
        UsageError: The budget is no number above 0.
    """

    def __init__(self, budget: float | str | None = None):
        try:
            seconds = math.inf if budget is None else float(budget)
        except ValueError:
            seconds = math.nan
        if not seconds > 0:
            raise UsageError(f"--budget {budget}: seconds above 0 are expected")
        self.budget = self._whole = seconds
        self._begun = time.monotonic()

    def until(self, share: float) -> Deadline:
        """Return a deadline at a share of the budget, so that later steps have the rest."""
        part = copy.copy(self)
        part.budget = share * self._whole
        return part

    def within(self, seconds: float) -> Deadline:
        """Return a deadline that ends some seconds from now, or with this one."""
        part = copy.copy(self)
        part.budget = min(self.budget, self.elapsed + seconds)
        return part

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    @property
    def remaining(self) -> float:
        """Seconds that are left; 0 once the time is up, infinite without a limit."""
        return max(0.0, self.budget - self.elapsed)

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.remaining <= 0

    @property
    def text(self) -> str:
        """The remaining time in words; empty without a limit."""
        return "" if math.isinf(self.budget) else f" ({max(0.0, self._whole - self.elapsed):.0f} s left)"
