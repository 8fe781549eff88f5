"""One run in several threads: a region starts when the last one that it waits for is done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Executor as Threads
from contextvars import copy_context
from typing import TYPE_CHECKING

from dovetail_runtime.dependencies import Dependencies

if TYPE_CHECKING:
    import numpy as np

    from dovetail_runtime.region_runner import RegionRunner
    from dovetail_runtime.timeline import Run


class ParallelRun:
    """Runs regions once, each as soon as its values are there.

    The calling thread takes part; further regions that are ready are handed to other threads. A value is freed when the
    last region that reads it is done. When a region fails, no further one starts, and the first failure in the order of
    the regions is raised.

    Args:
        runners: The regions.
        dependencies: What they wait for.
        values: The inputs; gets the values.
        kept: Names of values that are not freed.
        threads: Where regions are run beside the calling thread.
        recorded: What records the run; None for nothing.
    """

    def __init__(
        self,
        runners: Sequence[RegionRunner],
        dependencies: Dependencies,
        values: dict[str, np.ndarray],
        kept: Collection[str],
        threads: Threads,
        recorded: Run | None = None,
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
            # What a plugin prints is collected by context, and a thread has one of its own.
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
