"""Processes that compile the models of a folder, on whatever machine a task is sent to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dovetail.errors import UsageError
from dovetail.plugin import Tool

from dovetail_commands.sent_tasks import as_text

if TYPE_CHECKING:
    from dovetail_commands.folder_worker import FolderJob

_JOBS = 100  # of a process, so that nothing that engines leave behind adds up


class FolderProcess:
    """A process that does jobs, one at a time; see `folder_worker`. One that ended, or did many, is replaced.

    Args:
        blocked: Names of plugins to leave out.
    """

    def __init__(self, blocked: Sequence[str]):
        self.blocked, self._jobs = tuple(blocked), 0
        self._tool = Tool.start("dovetail_commands.folder_worker", title="its process", hint="compile this model alone")
        self._plugins = self._tool.opened("begin", blocked=list(blocked))

    def ask(self, job: FolderJob) -> dict[str, Any]:
        """Do a job, and return its answer.

        Raises:
            EngineError: The job fails, or the process ends.
        """
        if self._jobs and self._jobs % _JOBS == 0:
            self._tool.close()
        self._jobs += 1
        answer: dict[str, Any] = self._plugins.ask("compile_model", job=job)
        return answer

    def end(self) -> None:
        """End the process."""
        self._tool.close()


class _Idle:
    """The processes of this program that wait for a job; those of a cluster's machine are kept between tasks."""

    def __init__(self) -> None:
        self._lock, self._processes = threading.Lock(), list[FolderProcess]()

    @contextmanager
    def process(self, blocked: Sequence[str]) -> Iterator[FolderProcess]:
        with self._lock:
            at = (n for n, process in enumerate(self._processes) if process.blocked == tuple(blocked))
            number = next(at, None)
            found = FolderProcess(blocked) if number is None else self._processes.pop(number)
        try:
            yield found
        finally:
            with self._lock:
                self._processes.append(found)

    def end(self) -> None:
        with self._lock:
            while self._processes:
                self._processes.pop().end()


_idle = _Idle()


def in_process(text: str, blocked: Sequence[str]) -> str:
    """Do a job, given as JSON, in a process of its own; return what it answers, or how it ended, as JSON."""

    def work() -> dict[str, Any]:
        with _idle.process(blocked) as process:
            return process.ask(json.loads(text))

    return as_text(work)


@contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """Yield an executor for `jobs` processes of this machine at a time.

    Raises:
        UsageError: `jobs` is less than one.
    """
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: a number from 1 is expected")
    _idle.end()  # those that began in another folder or environment
    try:
        with ThreadPoolExecutor(jobs) as executor:  # each thread waits for a process
            yield executor
    finally:
        _idle.end()
