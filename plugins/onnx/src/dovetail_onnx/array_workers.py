"""Additional processes that compute functions of arrays, such as the encoding of weights, in parallel with this one.

Threads would not help: NumPy takes Python's lock for every operation, and operations on arrays that fit a core's cache
take microseconds.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, Tool, ToolEndedError

if TYPE_CHECKING:
    import numpy as np

    Arrays = Sequence[np.ndarray]
    Task = tuple[Mapping[str, Any], Callable[[], Arrays]]
    """Settings, as plain data, and what reads the arrays."""

_MOST = 8  # processes
_AFTER = 0.5  # seconds of work, before others help: starting a process takes as long
_current: ContextVar[Workers | None] = ContextVar("workers", default=None)


def map_arrays(function: Callable[..., Arrays], tasks: Iterable[Task]) -> Iterator[Arrays]:
    """Yield `function(settings, *arrays)` for all tasks in order.

    Inside of `workers()`, several processes compute them, a few at a time. The result does not depend on which one
    does: `function` depends on nothing but its arguments.

    Args:
        function: A function of a module.
        tasks: The tasks; arrays are read when their turn comes, perhaps in another thread.
    """
    found = _current.get()
    if found is None:
        yield from (function(settings, *read()) for settings, read in tasks)
    else:
        yield from found.map(function, tasks)


@contextlib.contextmanager
def workers(number: int | None = None) -> Iterator[None]:
    """Let several processes compute the calls of `map_arrays` inside of the block.

    Args:
        number: How many, this one included; by default one for each processor that this process may use.
    """
    number = min(_MOST, _processors()) if number is None else number
    if number < 2 or _current.get() is not None:
        yield
        return
    found = Workers(number)
    token = _current.set(found)
    try:
        yield
    finally:
        _current.reset(token)
        found.close()


class Workers:
    """Processes, this one included, that compute functions of arrays.

    Args:
        number: How many.
    """

    def __init__(self, number: int):
        self._pool = ThreadPoolExecutor(number, "dovetail-workers")
        self._number = number
        self._spent = 0.0
        self._lock = threading.Lock()
        self._free: queue.SimpleQueue[Tool | None] = queue.SimpleQueue()
        self._free.put(None)  # stands for this process
        self._all: list[Tool] = []

    def map(self, function: Callable[..., Arrays], tasks: Iterable[Task]) -> Iterator[Arrays]:
        """See `map_arrays`."""
        stream = iter(tasks)
        first = list(islice(stream, 2))
        if len(first) < 2:
            yield from (function(settings, *read()) for settings, read in first)
            return
        waiting: deque[Future[Arrays]] = deque()
        try:
            for task in chain(first, stream):
                waiting.append(self._pool.submit(self._compute, function, task))
                if len(waiting) > self._number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)
        for tool in self._all:
            tool.close()

    def _compute(self, function: Callable[..., Arrays], task: Task) -> Arrays:
        tool, is_usable = self._free.get(), True
        try:
            settings, read = task
            arrays = read()
            if tool is not None:
                given = {"module": function.__module__, "name": function.__qualname__, "settings": settings}
                try:
                    found: Arrays = tool.ask("compute", arrays=list(arrays), **given)
                    return found
                except EngineError as error:  # this process calls the function itself, and raises what it raises
                    is_usable = not isinstance(error, ToolEndedError)
            begin = time.perf_counter()
            try:
                return function(settings, *arrays)
            finally:
                self._add(time.perf_counter() - begin)
        finally:
            if is_usable:
                self._free.put(tool)

    def _add(self, seconds: float) -> None:
        """Count the work of this process, and start the others once it is worth it."""
        with self._lock:
            self._spent += seconds
            if self._all or self._spent < _AFTER:
                return
            try:
                self._all = [Tool.start(__name__, title="a worker") for _ in range(self._number - 1)]
            except DovetailError:  # dovetail-runtime, which starts them, is not installed
                self._spent = -math.inf
            for tool in self._all:
                self._free.put(tool)


def _processors() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # another system than Linux
        return os.cpu_count() or 1


def compute(module: str, name: str, settings: Mapping[str, Any], arrays: Arrays) -> Arrays:
    """Call a function of a module: the function of the worker."""
    found: Arrays = getattr(importlib.import_module(module), name)(settings, *arrays)
    return found
