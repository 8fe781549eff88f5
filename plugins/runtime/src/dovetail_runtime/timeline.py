"""Timeline of regions, instructions and live memory, in a format that Chrome tracing and Perfetto open."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dovetail.plugin.loading import CURRENT_RECORDER
from dovetail.text import pluralize
from dovetail_onnx.files.writing import replacing_file

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, SpanRecorder

    from dovetail_runtime.executor import RegionExecutor
    from dovetail_runtime.executors import GuardedExecutor
    from dovetail_runtime.region_runner import RegionRunner


_PROCESS = 1


class Timeline:
    """Records runs of an executor; concurrent runs are supported.

    Attributes:
        peak: Peak of live bytes in a single run, inputs included.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._events: list[dict[str, Any]] = []
        self._start = time.perf_counter_ns()
        self._lock = threading.Lock()
        # The system reuses the ids of ended threads, so the name is part of the key.
        self._threads: dict[tuple[int, str], int] = {}
        self._runs = 0

    @contextmanager
    def run(self, inputs: Mapping[str, Any]) -> Iterator[RecordedRun]:
        """Record one run of the model until the end of the block."""
        with self._lock:
            self._runs += 1
            number = self._runs
            self._thread()
        run = RecordedRun(self, sum(map(_bytes, inputs.values())))
        begun = time.perf_counter_ns()
        try:
            yield run
        finally:
            self.span(f"run {number}", "run", begun, {"peak bytes": run.peak})
            with self._lock:
                self.peak = max(self.peak, run.peak)

    def span(self, name: str, category: str, begun: int, about: Mapping[str, Any]) -> None:
        """Record a span of this thread from `begun` (`time.perf_counter_ns`) until now."""
        now = time.perf_counter_ns()
        event = {"name": name, "cat": category, "ph": "X", "ts": (begun - self._start) / 1000, "args": dict(about)}
        self._enter({**event, "dur": (now - begun) / 1000})

    def count(self, name: str, value: int) -> None:
        """Record the current value of a counter."""
        at = (time.perf_counter_ns() - self._start) / 1000
        self._enter({"name": name, "ph": "C", "ts": at, "args": {"bytes": value}})

    def _enter(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._events.append({**event, "pid": _PROCESS, "tid": self._thread()})

    def _thread(self) -> int:
        """Return the number of this thread in the document."""
        return self._threads.setdefault(
            (threading.get_ident(), threading.current_thread().name), len(self._threads) + 1
        )

    def document(self) -> dict[str, Any]:
        """Return the timeline in the trace event format: spans in microseconds, counters, and thread names."""
        with self._lock:
            names = [
                {"name": "thread_name", "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": name}}
                for (_, name), thread in self._threads.items()
            ]
            return {"traceEvents": [*names, *self._events], "displayTimeUnit": "ms"}

    def save(self, path: Path) -> None:
        """Write the timeline as JSON; an existing file is replaced atomically."""
        with replacing_file(path) as file:
            file.write(json.dumps(self.document()).encode())


class RecordedRun:
    """A run that is being recorded.

    Attributes:
        peak: Peak of live bytes so far.
    """

    def __init__(self, timeline: Timeline, live: int):
        self._timeline, self._live = timeline, live
        self._lock = threading.Lock()
        self.peak = live

    @contextmanager
    def region(self, runner: RegionRunner) -> Iterator[dict[str, Any]]:
        """Record the run of a region; the caller enters its outputs into the dict. Engines may add spans."""
        begun = time.perf_counter_ns()
        given: dict[str, Any] = {}
        try:
            with _recorded_by(self._timeline):
                yield given
        finally:
            made = sum(map(_bytes, given.values()))
            about = {"backend": runner.backend, "engine": runner.engine, "bytes out": made}
            name = f"region {runner.index}: {pluralize(len(runner.nodes), 'node')} of {runner.backend}"
            self._timeline.span(name, "region", begun, about)
            self._change(made)

    def freed(self, value: Any) -> None:
        """Record that a value was freed."""
        self._change(-_bytes(value))

    def _change(self, difference: int) -> None:
        with self._lock:
            self._live += difference
            self.peak = max(self.peak, self._live)
            self._timeline.count("live", self._live)


@contextmanager
def trace(compiled: CompiledModel, path: str | Path | None = None, executor: str = "") -> Iterator[Timeline]:
    """Record all runs of a result within the block.

    Args:
        compiled: The result.
        path: A file for the timeline, written at the end of the block; None writes none.
        executor: The executor, as for `CompiledModel.run`; for a plugin's executor only whole runs are recorded, not
            regions.

    Yields:
        The timeline.

    Raises:
        DovetailError: No engine runs a region.
    """
    timeline = Timeline()
    used = cast("RegionExecutor | GuardedExecutor", compiled.executor(executor))
    used.timeline = timeline
    try:
        yield timeline
    finally:
        used.timeline = None
        if path is not None:
            timeline.save(Path(path))


def _bytes(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return getattr(value, "nbytes", 0)


@contextmanager
def _recorded_by(recorder: SpanRecorder) -> Iterator[None]:
    """Make `dovetail.plugin.span_recorder` return `recorder` in this thread until the end of the block."""
    token = CURRENT_RECORDER.set(recorder)
    try:
        yield
    finally:
        CURRENT_RECORDER.reset(token)
