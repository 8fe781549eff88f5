"""Child processes that compile, run and time candidates, so that a crash costs one candidate and nothing else."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import time
from collections.abc import Sequence
from subprocess import PIPE, TimeoutExpired
from typing import Any

from dovetail.errors import DovetailError
from dovetail.plugin import PythonProcess, TemporaryFolder, anonymous_file

_SHOWN = 300  # characters of a worker's last words
_GRACE = 5.0  # seconds to end in


class WorkerError(DovetailError):
    """A candidate failed in its process: it was refused, it crashed, or it took too long."""


class Worker:
    """A process that answers jobs, one at a time; see `dovetail_tune.worker` for the jobs.

    Args:
        blocked: Names of plugins to leave out, as after `--no-plugin`.
        inherited: A file descriptor that the process keeps open, such as that of a lock.
    """

    def __init__(self, blocked: Sequence[str] = (), inherited: int | None = None):
        self._words = anonymous_file()
        # A process that is killed removes none of its temporary files, which may be as large as the model.
        self._temporary = TemporaryFolder("tune")
        # Standard output belongs to the answers, so that nothing that an engine prints can be mistaken for one.
        self._process = PythonProcess(
            "dovetail_tune.worker", blocked, {"TMPDIR": str(self._temporary.path)},
            () if inherited is None else (inherited,), stdin=PIPE, stdout=PIPE, stderr=self._words,
        )  # fmt: skip
        self._buffer = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, job: dict[str, Any], timeout: float = math.inf) -> dict[str, Any]:
        """Send a job and return its answer.

        Args:
            job: Plain data with the key `job`.
            timeout: Seconds; the process is ended when they are over.

        Raises:
            WorkerError: The job failed, the process ended, or the time is over. Only the first leaves it usable.
        """
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(json.dumps(job).encode() + b"\n")
                stdin.flush()
        except OSError:
            raise self._ended() from None
        answer = json.loads(self._line(timeout))
        if "error" in answer:
            raise WorkerError(answer["error"], answer.get("hint", ""))
        return answer

    def close(self) -> None:
        """End the process and wait for it."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        try:
            self._process.wait(_GRACE)
        except TimeoutExpired:
            self._kill()
        self._words.close()
        self._temporary.cleanup()

    def _line(self, timeout: float) -> bytes:
        """Read one line within `timeout` seconds."""
        stdout = self._process.stdout
        if stdout is None:
            raise self._ended()
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(None if math.isinf(left) else left):
                    self._kill()
                    raise WorkerError(f"it took longer than {timeout:.0f} s", "give a larger --budget")
                part = os.read(stdout.fileno(), 1 << 16)
                if not part:
                    raise self._ended()
                self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ended(self) -> WorkerError:
        """Return an error that says how the process ended."""
        try:
            code = self._process.wait(_GRACE)
        except TimeoutExpired:
            self._kill()
            code = self._process.returncode
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        how = f"signal {_signal(-code)}" if code < 0 else f"exit code {code}"
        last = f": {lines[-1][:_SHOWN]}" if lines else ""
        return WorkerError(f"its process ended with {how}{last}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
