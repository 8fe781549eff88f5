"""Child processes that compile, run and time candidates, so that a crash costs one candidate and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dovetail.plugin import Tool


class Worker:
    """A process that does jobs, one at a time; see `dovetail_tune.worker`. One that ended does no others.

    Args:
        blocked: Names of plugins to leave out, as after `--no-plugin`.
        inherited: A file descriptor that the process keeps open, such as that of a lock.
    """

    def __init__(self, blocked: Sequence[str] = (), inherited: int | None = None):
        self._tool = Tool.start(
            "dovetail_tune.worker", title="its process", restarts=False,
            inherited=() if inherited is None else (inherited,),
        )  # fmt: skip
        self._jobs = self._tool.opened("begin", blocked=list(blocked))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, job: dict[str, Any], timeout: float = math.inf) -> dict[str, Any]:
        """Do a job and return its answer.

        Args:
            job: Plain data with the key `job`.
            timeout: Seconds; the process is ended when they are over.

        Raises:
            EngineError: The job failed, the process ended, or the time is over. Only the first leaves it usable.
        """
        answer: dict[str, Any] = self._jobs.ask("do", timeout, job=job)
        return answer

    def close(self) -> None:
        """End the process."""
        self._tool.close()
