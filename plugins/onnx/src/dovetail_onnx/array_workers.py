"""Additional processes that compute functions of arrays, such as the encoding of weights, in parallel with this one.

Threads would not help: NumPy takes Python's lock for every operation, and operations on arrays that fit a core's cache
take microseconds.

    python -m dovetail_onnx.array_workers
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from itertools import chain, islice
from subprocess import DEVNULL, PIPE
from typing import IO, TYPE_CHECKING, Any

from dovetail.plugin import PythonProcess, end_with_parent

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
        self._free: queue.SimpleQueue[_Process | None] = queue.SimpleQueue()
        self._free.put(None)  # stands for this process
        self._all: list[_Process] = []

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
        for process in self._all:
            process.close()

    def _compute(self, function: Callable[..., Arrays], task: Task) -> Arrays:
        runner = self._free.get()
        try:
            settings, read = task
            arrays = read()
            found = None if runner is None else runner.call(function, settings, arrays)
            if found is not None:
                return found
            begin = time.perf_counter()
            try:
                return function(settings, *arrays)
            finally:
                self._add(time.perf_counter() - begin)
        finally:
            if runner is None or runner.usable:
                self._free.put(runner)

    def _add(self, seconds: float) -> None:
        """Count the work of this process, and start the others once it is worth it."""
        with self._lock:
            self._spent += seconds
            if not self._all and self._spent >= _AFTER:
                for _ in range(self._number - 1):
                    process = _Process()
                    self._all.append(process)
                    self._free.put(process)


class _Process:
    """One further process.

    Attributes:
        usable: Whether it is running, as far as is known.
    """

    def __init__(self) -> None:
        self._process = PythonProcess("dovetail_onnx.array_workers", stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        self.usable = True

    def call(self, function: Callable[..., Arrays], settings: Mapping[str, Any], arrays: Arrays) -> Arrays | None:
        """Return the result of a function in that process; None if it fails, or the process has ended.

        This process then calls the function itself, so that errors are raised where they are understood.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None, "both are pipes"
        try:
            _send(stdin, {"module": function.__module__, "name": function.__qualname__, "settings": settings}, arrays)
            answer = _receive(stdout)
        except (OSError, ValueError, EOFError):
            self.usable = False
            return None
        return answer[1] if answer[0] is not None else None

    def close(self) -> None:
        """End the process, which has no state to save."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


def _processors() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # another system than Linux
        return os.cpu_count() or 1


def _send(stream: IO[bytes], head: Mapping[str, Any] | None, arrays: Arrays) -> None:
    """Write plain data and arrays: a line of JSON, then the bytes of each."""
    import numpy as np

    forms = [(array.dtype.name, array.shape) for array in arrays]
    stream.write(json.dumps({"head": head, "arrays": forms}).encode() + b"\n")
    for array in arrays:
        stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[Any, list[np.ndarray]]:
    """Read what `_send` wrote.

    Raises:
        EOFError: The other process has ended.
    """
    import numpy as np

    line = stream.readline()
    if not line:
        raise EOFError
    given = json.loads(line)
    arrays = []
    for name, shape in given["arrays"]:
        array = np.empty(shape, _dtype(name))
        data = array.reshape(-1).view(np.uint8).data
        if stream.readinto(data) != len(data):  # type: ignore[attr-defined]  # pipes are buffered readers
            raise EOFError
        arrays.append(array)
    return given["head"], arrays


def _dtype(name: str) -> np.dtype:
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # noqa: F401  (it registers the types of models that NumPy lacks)

        return np.dtype(name)


def main() -> None:
    """Compute the tasks from standard input, until it ends."""
    end_with_parent()
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a function prints is no answer
    while True:
        try:
            head, arrays = _receive(requests)
        except EOFError:
            return
        try:
            function = getattr(importlib.import_module(head["module"]), head["name"])
            found = function(head["settings"], *arrays)
        except Exception:  # the other process calls the function again, and raises what it raises
            _send(answers, None, [])
        else:
            _send(answers, {}, found)


if __name__ == "__main__":
    main()
