"""Hosts: the machines of an executor, which tasks are sent to, and sent again to when one of them is lost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from dovetail.errors import DovetailError
from dovetail_runtime.machine import difference

from dovetail_tune.answers import Answer, InvalidAnswer, answer_of, as_text, greeting_of
from dovetail_tune.deadline import Deadline
from dovetail_tune.tasks import Job, Place, Rules, compare, convert, greet

_ATTEMPTS = 4  # of a task whose worker is lost, or that ran on a machine of another kind
_GRACE = 10.0  # seconds beyond a task's own limit, in which its answer arrives


@dataclass(frozen=True)
class Executors:
    """Where tasks run.

    Attributes:
        converting: Runs conversions with their accuracy, beside each other.
        timing: Runs timings; a lock on each machine keeps everything else of a tuning away meanwhile.
        notes: What is to be said about the machines, as sentences.
    """

    converting: Executor
    timing: Executor
    notes: tuple[str, ...] = ()


class LostError(DovetailError):
    """No machine answered: the executor stopped, or lost the worker of a task several times."""


class Hosts:
    """The machines behind executors. All answers are those of one kind of machine: the one that answers first.

    Args:
        executors: The executors; one that does both is all right.
        place: What tasks are told about the tuning.

    Attributes:
        machine: Fingerprint of the machines; timings of others are not used.
        notes: What happened to tasks, as sentences.

    Raises:
        LostError: No machine answers.
    """

    def __init__(self, executors: Executor | Executors, place: Place):
        self._executors = executors if isinstance(executors, Executors) else Executors(executors, executors)
        self._place = place
        self.notes = list(self._executors.notes)
        self.machine: Mapping[str, str] = {}
        self.machine = _Pending(self, self._executors.timing, greeting_of, greet, place, ()).result(None)[0]

    def check_paths(self, paths: Sequence[str]) -> None:
        """Check that a machine sees these files and folders.

        Raises:
            DovetailError: It does not.
        """
        sent = _Pending(self, self._executors.converting, greeting_of, greet, self._place, tuple(paths))
        _, missing = sent.result(None)
        if missing:
            raise DovetailError(
                f"the executor's machines do not see {missing[0]}",
                "keep model and journal (--journal FOLDER) where all machines have them under the same path",
            )

    def convert(self, job: Job, deadline: Deadline) -> Callable[[], Answer]:
        """Send a conversion; what is returned waits for its answer.

        Args:
            job: A `prepare` job.
            deadline: The time that is left.
        """
        read = partial(answer_of, kinds={"": job["job"]})
        pending = _Pending(self, self._executors.converting, read, convert, self._place, job, deadline.remaining)
        return lambda: pending.result(deadline)

    def compare(self, jobs: Mapping[str, Job], rules: Rules, deadline: Deadline) -> Callable[[], Answer]:
        """Send a race; what is returned waits for its answer.

        Args:
            jobs: A `load` or `segment` job by the runner's name.
            rules: The rules of the race; without rounds, this is a conversion.
            deadline: The time that is left.
        """
        executor = self._executors.timing if rules.rounds else self._executors.converting
        read = partial(answer_of, kinds={name: job["job"] for name, job in jobs.items()})
        pending = _Pending(self, executor, read, compare, self._place, dict(jobs), rules, deadline.remaining)
        return lambda: pending.result(deadline)

    def why_unfit(self, answer: Any) -> str:
        """Return how the machine of an answer differs from the others; empty if it does not."""
        if not isinstance(answer, Answer) or answer.machine == self.machine:
            return ""
        return difference(answer.machine, self.machine)


class _Pending:
    """A task that was sent, and is sent again if its worker is lost, or its answer is not valid."""

    def __init__(
        self,
        hosts: Hosts,
        executor: Executor,
        read: Callable[[object], Any],
        task: Callable[..., Any],
        *arguments: object,
    ):
        self._hosts, self._executor, self._read, self._task, self._arguments = hosts, executor, read, task, arguments
        self._future = self._sent()

    def result(self, deadline: Deadline | None) -> Any:
        """Wait for the answer.

        Raises:
            LostError: The executor stopped, or lost the worker every time.
            TimeoutError: The deadline is over.
        """
        why = ""
        for attempt in range(_ATTEMPTS):
            limit = None
            if deadline is not None and deadline.remaining < math.inf:
                limit = max(0.0, deadline.budget + _GRACE - deadline.elapsed)
            begun = time.monotonic()
            try:
                answer = self._read(self._future.result(limit))
                why = self._hosts.why_unfit(answer)
                if not why:
                    return answer
                self._note(f"an answer of {why} is not used")
            except BrokenExecutor as error:
                raise LostError(f"the executor stopped: {error}", _RESUME) from error
            except TimeoutError:
                if limit is not None and time.monotonic() - begun >= limit:
                    self._future.cancel()
                    raise
                why = "it timed out"
            except DovetailError:
                raise
            except InvalidAnswer as error:
                why = f"its answer is not valid: {error}"
                self._note(f"an answer that is not valid is not used: {error}")
            except (Exception, CancelledError) as error:
                why = f"{type(error).__name__}: {error}"
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
        if text not in self._hosts.notes:
            self._hosts.notes.append(text)


_RESUME = "with the same --journal FOLDER, another start goes on where this one was"
