"""The pool of an executor: its machines, which tasks are sent to, and sent again to when one of them is lost."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from dovetail.errors import DovetailError
from dovetail_commands.sent_tasks import InvalidAnswer, answers, as_text
from dovetail_runtime.machine import difference

from dovetail_tune.answers import Answer, answer_of, greeting_of
from dovetail_tune.deadline import Deadline
from dovetail_tune.tasks import greet, measure, prepare
from dovetail_tune.worker_pool import Job, Pending, RaceMeasurement, WorkerPool, WorkerSettings

T = TypeVar("T")

_GRACE = 10.0  # seconds beyond a task's own limit, in which its answer arrives


@dataclass(frozen=True)
class Executors:
    """Where tasks run.

    Attributes:
        preparing: Prepares candidates, beside each other.
        timing: Runs timings; a lock on each machine keeps everything else of a tuning away meanwhile.
        notes: What is to be said about the machines, as sentences.
        offers: Why engines are not available on them, by name, empty for those that are; None if nobody asked them.
    """

    preparing: Executor
    timing: Executor
    notes: tuple[str, ...] = ()
    offers: Mapping[str, str] | None = None


class _OtherMachine(Exception):
    """An answer is that of another kind of machine."""


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
        self.machine = self._sent(self._executors.timing, greeting_of, greet, ())()[0]

    def check_paths(self, paths: Sequence[str]) -> None:
        """See `WorkerPool`."""
        _, missing = self._sent(self._executors.preparing, greeting_of, greet, tuple(paths))()
        if missing:
            raise DovetailError(
                f"the executor's machines do not see {missing[0]}",
                "keep model and journal (--journal FOLDER) where all machines have them under the same path",
            )

    def prepare(self, job: Job, deadline: Deadline) -> Pending:
        """See `WorkerPool`. Every result is saved, also one that another candidate has, as both may begin at once."""
        read = self._reader({"": job["job"]})
        task = prepare, {**job, "known": []}, deadline.remaining
        return self._sent(self._executors.preparing, read, *task, deadline=deadline)

    def measure(
        self, measurement: RaceMeasurement, deadline: Deadline, progress: Callable[[int], None] = lambda _: None
    ) -> Pending:
        """See `WorkerPool`."""
        progress(0)  # rounds are not known until the answer comes
        executor = self._executors.timing if measurement.rounds else self._executors.preparing
        read = self._reader({name: job["job"] for name, job in measurement.jobs.items()})
        deadline = deadline if measurement.limit is None else Deadline(measurement.limit)
        return self._sent(executor, read, measure, measurement, deadline.remaining, deadline=deadline)

    def _reader(self, kinds: Mapping[str, str]) -> Callable[[object], Answer]:
        """Return what reads the answer of a task, by the kinds of its jobs, and refuses that of another machine."""

        def read(text: object) -> Answer:
            answer = answer_of(text, kinds)
            if why := difference(answer.machine, self.machine):
                raise _OtherMachine(why)
            return answer

        return read

    def _sent(
        self,
        executor: Executor,
        read: Callable[[object], T],
        task: Callable[..., Any],
        *arguments: object,
        deadline: Deadline | None = None,
    ) -> Callable[[], T]:
        """Send a task, and return what waits for its answer."""

        def left() -> float:
            return math.inf if deadline is None else deadline.budget + _GRACE - deadline.elapsed

        found = answers(
            1, lambda _: executor.submit(as_text, task, self.settings, *arguments), read,
            left=left, resent=self._note, way_out="with the same --journal FOLDER, another start resumes",
        )  # fmt: skip
        return lambda: next(found)[1]

    def _note(self, error: BaseException) -> None:
        """Note why a task is sent again, once for each reason."""
        text = "a worker was lost, and its task was sent again"
        if isinstance(error, _OtherMachine):
            text = f"an answer of {error} is not used"
        elif isinstance(error, InvalidAnswer):
            text = f"an answer that is not valid is not used: {error}"
        if text not in self.notes:
            self.notes.append(text)
