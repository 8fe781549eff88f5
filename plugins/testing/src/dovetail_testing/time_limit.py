"""Time limits of commands that try one node after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.plugin.loading import TOOL_DEADLINE


class OutOfTime(Exception):
    """Raised when a time limit is reached."""


class TimeLimit:
    """A time limit that begins when it is created.

    Args:
        seconds: The limit; None for none.
    """

    def __init__(self, seconds: float | None):
        self._began, self._seconds = time.monotonic(), math.inf if seconds is None else seconds

    def end(self, share: float = 1.0) -> float:
        """Return the time, of `time.monotonic`, at which a share of the limit has passed."""
        return self._began + share * self._seconds

    def left(self, share: float = 1.0) -> float:
        """Return the seconds until a share of the limit has passed; 0 after it."""
        return max(0.0, self.end(share) - time.monotonic())

    def check(self, share: float = 1.0) -> None:
        """Compare the time with a share of the limit.

        Raises:
            OutOfTime: It has passed.
        """
        if time.monotonic() > self.end(share):
            raise OutOfTime

    @contextmanager
    def ends_tools(self, share: float = 1.0) -> Iterator[None]:
        """End the process of a tool that still works when a share of the limit has passed, while the block runs."""
        token = TOOL_DEADLINE.set(min(self.end(share), TOOL_DEADLINE.get()))
        try:
            yield
        finally:
            TOOL_DEADLINE.reset(token)
