"""Whether a plan runs faster region by region or with independent regions at the same time: measured, then kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

WAYS = ("auto", "on", "off")
"""The values of the option `parallel`."""

_RUNS = 4  # of each way; the first of each warms up
_SECONDS = 0.15  # of runs in several threads: it takes an operating system a while to give each a core of its own
_GAIN = 0.97
_SHORTEST = 2e-4  # seconds of a run that may gain: handing a region to another thread takes some 30 microseconds


@dataclass
class Pace:
    """Chooses between running in one thread and in several; safe to use from several threads.

    With `auto`, the first runs of a plan are in one thread, the next ones in several, and the faster way is kept:
    regions compete for cores with the threads of their engines, so that it depends on plan and machine.

    Attributes:
        way: `on`, `off` or `auto`.
    """

    way: str = "auto"
    _seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _settled: bool | None = None

    def next(self) -> bool:
        """Whether the next run is in several threads."""
        if self.way != "auto":
            return self.way == "on"
        if self._settled is not None:
            return self._settled
        return len(self._seconds[False]) >= _RUNS

    def took(self, parallel: bool, seconds: float) -> None:
        """Remember how long a run took."""
        if self._settled is not None or self.way != "auto":
            return
        with self._lock:
            self._seconds[parallel].append(seconds)
            one, several = (self._seconds[kind][1:] for kind in (False, True))
            if len(one) >= _RUNS - 1 and min(one) < _SHORTEST:
                self._settled = False
            elif min(len(one), len(several)) >= _RUNS - 1 and sum(several) >= _SECONDS:
                self._settled = min(several) < _GAIN * min(one)
