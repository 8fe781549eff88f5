"""Processes that compile the models of a folder, on whatever machine a task is sent to."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from subprocess import PIPE, TimeoutExpired

from dovetail.errors import UsageError
from dovetail.plugin import PythonProcess, TemporaryFolder, anonymous_file

from dovetail_commands.sent_tasks import failure_text

_JOBS = 100  # of a process, so that nothing that engines leave behind adds up
_GRACE = 5.0  # seconds to end in
_SHOWN = 300  # characters of its last words


class FolderProcess:
    """A process that does jobs, one at a time; see `folder_worker`.

    Args:
        blocked: Names of plugins to leave out.
    """

    def __init__(self, blocked: Sequence[str]):
        self.blocked = tuple(blocked)
        self.jobs = 0
        self._words = anonymous_file()
        self._temporary = TemporaryFolder("folder")  # a process that is killed removes none of its temporary files
        self._process = PythonProcess(
            "dovetail_commands.folder_worker", blocked, {"TMPDIR": str(self._temporary.path)}, stdin=PIPE, stdout=PIPE,
            stderr=self._words,
        )  # fmt: skip

    def ask(self, text: str) -> str:
        """Do a job, given as JSON; return the answer as JSON, or an empty text if the process ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None, "both are pipes"
        self.jobs += 1
        with contextlib.suppress(BrokenPipeError):
            stdin.write(text.encode() + b"\n")
            stdin.flush()
        return stdout.readline().decode()

    def end(self) -> str:
        """End the process, and say how it ended."""
        for stream in (self._process.stdin, self._process.stdout):  # the end of its input is that of its work
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        try:
            code = self._process.wait(_GRACE)
        except TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        self._words.close()
        self._temporary.cleanup()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"its process ended with {how}" + (f": {lines[-1][:_SHOWN]}" if lines else "")


class _Idle:
    """The processes of this program that wait for a job; those of a cluster's machine are kept between tasks."""

    def __init__(self) -> None:
        self._lock, self._processes = threading.Lock(), list[FolderProcess]()

    def take(self, blocked: Sequence[str]) -> FolderProcess:
        with self._lock:
            for number, process in enumerate(self._processes):
                if process.blocked == tuple(blocked):
                    return self._processes.pop(number)
        return FolderProcess(blocked)

    def put(self, process: FolderProcess) -> None:
        with self._lock:
            self._processes.append(process)

    def end(self) -> None:
        with self._lock:
            while self._processes:
                self._processes.pop().end()


_idle = _Idle()


def in_process(text: str, blocked: Sequence[str]) -> str:
    """Do a job, given as JSON, in a process of its own; return what it answers, or how it ended, as JSON."""
    answer = ended = ""
    try:
        process = _idle.take(blocked)
        try:
            answer = process.ask(text)
        finally:
            if answer and process.jobs < _JOBS:
                _idle.put(process)
            else:
                ended = process.end()
    except Exception as error:
        return failure_text(error)
    return answer or json.dumps({"error": ended, "hint": "compile this model alone"})


@contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """Yield an executor for `jobs` processes of this machine at a time.

    Raises:
        UsageError: `jobs` is less than one.
    """
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: a number from 1 is expected")
    try:
        with ThreadPoolExecutor(jobs) as executor:  # each thread waits for a process
            yield executor
    finally:
        _idle.end()
