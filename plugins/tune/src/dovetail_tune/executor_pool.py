"""The pool of an executor: its machines, which tasks are sent to, and sent again to when one of them is lost."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from dovetail.errors import DovetailError
from dovetail_commands.sent_tasks import LostTask, task_timeout
from dovetail_runtime.machine import difference

from dovetail_tune.answers import Answer, InvalidAnswer, answer_of, as_text, greeting_of
from dovetail_tune.deadline import Deadline
from dovetail_tune.tasks import greet, measure, prepare
from dovetail_tune.worker_pool import Job, Pending, RaceMeasurement, WorkerPool, WorkerSettings

_ATTEMPTS = 4  # of a task whose worker is lost, or that ran on a machine of another kind
_SILENCES = 2  # after which a task without an answer is given up
_GRACE = 10.0  # seconds beyond a task's own limit, in which its answer arrives


@dataclass(frozen=True)
class Executors:
    """Where tasks run.

    Attributes:
        preparing: Prepares candidates, beside each other.
        timing: Runs timings; a lock on each machine keeps everything else of a tuning away meanwhile.
        notes: What is to be said about the machines, as sentences.
    """

    preparing: Executor
    timing: Executor
    notes: tuple[str, ...] = ()


class LostError(DovetailError):
    """No machine answered: the executor stopped, or lost the worker of a task several times."""


class ExecutorPool(WorkerPool):
    """Sends tasks to executors, and again when a machine is lost; the first to answer decides which kind is used.

    Args:
        executors: The executors; one that does both is all right.
        settings: What workers are told.

    Raises:
        LostError: No machine answers.
    """

    at_once = sys.maxsize

    def __init__(self, executors: Executor | Executors, settings: WorkerSettings):
        super().__init__(settings, {})
        self._executors = executors if isinstance(executors, Executors) else Executors(executors, executors)
        self.notes += self._executors.notes
        self.machine = _Task(self, self._executors.timing, greeting_of, greet, ()).result(None)[0]

    def check_paths(self, paths: Sequence[str]) -> None:
        """See `WorkerPool`."""
        _, missing = _Task(self, self._executors.preparing, greeting_of, greet, tuple(paths)).result(None)
        if missing:
            raise DovetailError(
                f"the executor's machines do not see {missing[0]}",
                "keep model and journal (--journal FOLDER) where all machines have them under the same path",
            )

    def prepare(self, job: Job, deadline: Deadline) -> Pending:
        """See `WorkerPool`. Every result is saved, also one that another candidate has, as both may begin at once."""
        read = partial(answer_of, kinds={"": job["job"]})
        task = _Task(self, self._executors.preparing, read, prepare, {**job, "known": []}, deadline.remaining)
        return partial(task.result, deadline)

    def measure(
        self, measurement: RaceMeasurement, deadline: Deadline, progress: Callable[[int], None] = lambda _: None
    ) -> Pending:
        """See `WorkerPool`."""
        progress(0)  # rounds are not known until the answer comes
        executor = self._executors.timing if measurement.rounds else self._executors.preparing
        read = partial(answer_of, kinds={name: job["job"] for name, job in measurement.jobs.items()})
        deadline = deadline if measurement.limit is None else Deadline(measurement.limit)
        return partial(_Task(self, executor, read, measure, measurement, deadline.remaining).result, deadline)


class _Task:
    """A task that was sent, and is sent again if its worker is lost, or its answer is not valid."""

    def __init__(
        self,
        pool: ExecutorPool,
        executor: Executor,
        read: Callable[[object], Any],
        task: Callable[..., Any],
        *arguments: object,
    ):
        self._pool, self._executor, self._read = pool, executor, read
        self._task, self._arguments = task, (pool.settings, *arguments)
        self._future = self._sent()

    def result(self, deadline: Deadline | None) -> Any:
        """Wait for the answer.

        Raises:
            LostError: The executor stopped, or lost the worker every time.
            TimeoutError: The deadline is over.
        """
        why, silences = "", 0
        for attempt in range(_ATTEMPTS):
            silence, left = task_timeout(), math.inf
            if deadline is not None and deadline.remaining < math.inf:
                left = max(0.0, deadline.budget + _GRACE - deadline.elapsed)
            limit = min(silence, left)
            begun = time.monotonic()
            try:
                answer = self._read(self._future.result(limit))
                why = difference(answer.machine, self._pool.machine) if isinstance(answer, Answer) else ""
                if not why:
                    return answer
                self._note(f"an answer of {why} is not used")
            except BrokenExecutor as error:
                raise LostError(f"the executor stopped: {error}", _RESUME) from error
            except TimeoutError:
                if time.monotonic() - begun >= limit:
                    self._future.cancel()
                    if left <= silence:
                        raise
                    why, silences = f"no answer within {silence:g} s", silences + 1
                    if silences == _SILENCES:
                        break
                else:
                    why = "it timed out"
            except DovetailError:
                raise
            except InvalidAnswer as error:
                why = f"its answer is not valid: {error}"
                self._note(f"an answer that is not valid is not used: {error}")
            except (Exception, CancelledError) as error:
                why = str(error) if isinstance(error, LostTask) else f"{type(error).__name__}: {error}"
                self._note("a worker was lost, and its task was sent again")
            if attempt + 1 < _ATTEMPTS:
                self._future = self._sent()
        raise LostError(f"no machine does a task: {why}", _RESUME)

    def _sent(self) -> Future[Any]:
        try:
            return self._executor.submit(as_text, self._task, *self._arguments)
        except RuntimeError as error:  # it was shut down, or is broken
            raise LostError(f"the executor takes no task: {error}", _RESUME) from error

    def _note(self, text: str) -> None:
        if text not in self._pool.notes:
            self._pool.notes.append(text)


_RESUME = "with the same --journal FOLDER, another start resumes"
