"""One run in several threads: a region starts once its last dependency is done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Executor as Threads
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import name_of
from dovetail.planning import Region

if TYPE_CHECKING:
    import numpy as np

    from dovetail_runtime.region_runner import RegionRunner
    from dovetail_runtime.timeline import RecordedRun


_MOST = 4096
"""Maximum regions for which implied edges are removed; that takes a bit per pair of regions."""


@dataclass(frozen=True)
class RegionDependencies:
    """Dependencies between regions, transitively reduced.

    Regions are identified by their list index.

    Attributes:
        waits_for: Number of direct dependencies of each region.
        releases: The regions that wait for each region.
        reads: Number of reading regions by value.
        width: The largest number of regions on one level; 1 if each waits for the one before.
    """

    waits_for: tuple[int, ...]
    releases: tuple[tuple[int, ...], ...]
    reads: dict[str, int]
    width: int

    @classmethod
    def of(cls, regions: Sequence[Region]) -> RegionDependencies:
        """Return the dependencies of regions that are in execution order."""
        makers: dict[str, int] = {}
        reads: dict[str, int] = {}
        before: list[list[int]] = []
        for index, region in enumerate(regions):
            names = list(map(name_of, region.inputs))
            for name in names:
                reads[name] = reads.get(name, 0) + 1
            before.append(sorted({makers[name] for name in names if name in makers}))
            makers.update({name_of(value): index for value in region.outputs})
        if len(regions) <= _MOST:
            before = _without_implied(before)
        releases: list[list[int]] = [[] for _ in regions]
        levels: list[int] = []
        for index, sources in enumerate(before):
            levels.append(1 + max((levels[source] for source in sources), default=-1))
            for source in sources:
                releases[source].append(index)
        width = max((levels.count(level) for level in set(levels)), default=0) if len(levels) <= _MOST else 2
        return cls(tuple(map(len, before)), tuple(map(tuple, releases)), reads, width)


def _without_implied(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """Remove edges that are implied by other edges."""
    ancestors: list[int] = []  # a bit per region
    kept = []
    for sources in before:
        direct, reached = [], 0
        for source in reversed(sources):
            if not reached >> source & 1:
                direct.append(source)
            reached |= ancestors[source] | 1 << source
        ancestors.append(reached)
        kept.append(direct[::-1])
    return kept


class ParallelRun:
    """One parallel run of regions, each started once its inputs are available.

    The calling thread takes part; further ready regions go to other threads. A value is freed when the last region that
    reads it is done. After a failure no further region starts, and the first failure in region order is raised.

    Args:
        runners: The regions.
        dependencies: Their dependencies.
        values: Holds the inputs, and receives the values.
        kept: Names of values not to free.
        threads: Thread pool in addition to the calling thread.
        recorded: Recorder of the run, or None.
    """

    def __init__(
        self,
        runners: Sequence[RegionRunner],
        dependencies: RegionDependencies,
        values: dict[str, np.ndarray],
        kept: Collection[str],
        threads: Threads,
        recorded: RecordedRun | None = None,
    ):
        self._runners, self._dependencies, self._values = runners, dependencies, values
        self._kept, self._threads, self._recorded = kept, threads, recorded
        self._waits_for = list(dependencies.waits_for)
        self._reads = dict(dependencies.reads)
        self._ready = deque(index for index, count in enumerate(self._waits_for) if not count)
        self._left = len(runners)
        self._running = 0
        self._failures: dict[int, BaseException] = {}
        self._changed = threading.Condition()

    def run(self) -> None:
        """Run all regions.

        Raises:
            DovetailError: A region failed.
        """
        while True:
            with self._changed:
                while not self._ready and self._running:
                    self._changed.wait()
                if not self._ready:
                    break
                mine = self._ready.popleft()
                others = list(self._ready)
                self._ready.clear()
                self._running += 1 + len(others)
            self._hand_out(others)
            self._one(mine)
        if self._failures:
            raise self._failures[min(self._failures)]

    def _hand_out(self, indices: Sequence[int]) -> None:
        for index in indices:
            # Captured output of plugins is per context, and a new thread has its own context.
            self._threads.submit(copy_context().run, self._one, index)

    def _one(self, index: int) -> None:
        try:
            runner = self._runners[index]
            given = {name: self._values[name] for name in runner.inputs}
            if self._recorded is None:
                made = runner.run(given)
            else:
                with self._recorded.region(runner) as made:
                    made.update(runner.run(given))
            self._done(index, made, None)
        except BaseException as error:
            self._done(index, {}, error)

    def _done(self, index: int, made: dict[str, np.ndarray], failure: BaseException | None) -> None:
        with self._changed:
            self._running -= 1
            self._left -= 1
            if failure is not None:
                self._failures[index] = failure
            self._values.update(made)
            unread = [name for name in made if name not in self._reads]
            for name in self._runners[index].inputs:
                self._reads[name] -= 1
                if not self._reads[name]:
                    unread.append(name)
            for name in unread:
                if name not in self._kept:
                    value = self._values.pop(name)
                    if self._recorded is not None:
                        self._recorded.freed(value)
            for following in self._dependencies.releases[index]:
                self._waits_for[following] -= 1
                if not self._waits_for[following]:
                    self._ready.append(following)
            if self._failures:
                self._ready.clear()
            self._changed.notify()


WAYS = ("auto", "on", "off")
"""Values of the option `parallel`."""

_RUNS = 4  # runs in each mode; the first one warms up
_SECONDS = 0.15  # seconds of parallel runs; an operating system takes a while to spread threads over cores
_GAIN = 0.97
_SHORTEST = 2e-4  # seconds of the shortest run that may gain; handing a region over takes about 30 microseconds


@dataclass
class Pace:
    """Chooses between one and several threads; thread-safe.

    With `auto`, the first runs use one thread, the next ones several, and the faster mode is kept. Regions compete for
    cores with the threads of their engines, so the better mode depends on plan and machine.

    Attributes:
        way: `on`, `off` or `auto`.
    """

    way: str = "auto"
    _seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _settled: bool | None = None

    def next(self) -> bool:
        """Return whether the next run uses several threads."""
        if self.way != "auto":
            return self.way == "on"
        if self._settled is not None:
            return self._settled
        return len(self._seconds[False]) >= _RUNS

    @property
    def is_in_order(self) -> bool:
        """Whether all further runs use one thread."""
        return self.way == "off" or self._settled is False

    def took(self, parallel: bool, seconds: float) -> None:
        """Record how long a run took."""
        if self._settled is not None or self.way != "auto":
            return
        with self._lock:
            self._seconds[parallel].append(seconds)
            one, several = (self._seconds[kind][1:] for kind in (False, True))
            if len(one) >= _RUNS - 1 and min(one) < _SHORTEST:
                self._settled = False
            elif min(len(one), len(several)) >= _RUNS - 1 and sum(several) >= _SECONDS:
                self._settled = min(several) < _GAIN * min(one)
