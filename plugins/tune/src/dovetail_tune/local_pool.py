"""The pool of this machine: processes of this program, which are kept from task to task."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dovetail_runtime.machine import fingerprint

from dovetail_tune.answers import Answer
from dovetail_tune.deadline import Deadline
from dovetail_tune.tasks import timed
from dovetail_tune.worker_pool import Job, Pending, RaceMeasurement, WorkerPool, WorkerSettings
from dovetail_tune.worker_process import Worker, WorkerError

_PREPARES = "prepare"  # the process that prepares candidates; runners have other names


@dataclass
class _Kept:
    """A process, and the result that its last job left in it."""

    worker: Worker
    result: str = ""
    found: dict[str, Any] = field(default_factory=dict)


class LocalPool(WorkerPool):
    """Does a task when its answer is asked for, in processes that are kept, because engines take seconds to import.

    One process prepares all candidates, and each runner of a measurement has one. A result is timed in the process that
    has it already: a candidate where it was prepared, the baseline where it was loaded the first time. A process in
    which something failed is ended.
    """

    def __init__(self, settings: WorkerSettings):
        super().__init__(settings, fingerprint(settings.distributions))
        self._kept: dict[str, _Kept] = {}

    def prepare(self, job: Job, deadline: Deadline) -> Pending:
        """See `WorkerPool`."""
        return partial(self._prepare, job, deadline)

    def measure(
        self, measurement: RaceMeasurement, deadline: Deadline, progress: Callable[[int], None] = lambda _: None
    ) -> Pending:
        """See `WorkerPool`."""
        return partial(self._measure, measurement, deadline, progress)

    def release(self, runners: Collection[str] | None = None) -> None:
        """See `WorkerPool`."""
        for name in list(self._kept) if runners is None else runners:
            if name in self._kept:
                self._kept.pop(name).worker.close()

    def _prepare(self, job: Job, deadline: Deadline) -> Answer:
        try:
            return Answer(self.machine, {"": self._do(_PREPARES, job, deadline.remaining)[1]})
        except WorkerError as error:
            return Answer(self.machine, failed={"": error.message})

    def _measure(self, measurement: RaceMeasurement, deadline: Deadline, progress: Callable[[int], None]) -> Answer:
        if measurement.is_fresh:
            self.release()
        names = {name: self._name_of(name, job) for name, job in measurement.jobs.items()}
        ends = deadline if measurement.limit is None else Deadline(measurement.limit)
        answer = timed(
            measurement, self.settings.callers, lambda name, job: self._do(names[name], job, ends.remaining), ends,
            progress,
        )  # fmt: skip
        answer.machine = self.machine
        self.release([names[name] for name in answer.failed])
        if measurement.is_fresh:
            self.release()
        return answer

    def _name_of(self, runner: str, job: Job) -> str:
        """Return the name of the process that has the result of a job, or that shall have it."""
        return next((name for name, kept in self._kept.items() if kept.result == _result_of(job)), runner)

    def _do(self, name: str, job: Job, limit: float) -> tuple[Worker, dict[str, Any]]:
        """Do a job in the process of a name, unless that has its result; return the process and the job's answer.

        Raises:
            WorkerError: The job failed, and the process was ended.
        """
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _Kept(Worker(self.settings.blocked))
        if kept.result != _result_of(job):
            kept.result = ""
            try:
                kept.found = kept.worker.ask(dict(job), limit)
            except WorkerError:
                self.release([name])
                raise
            kept.result = _result_of(job)
        return kept.worker, kept.found


def _result_of(job: Job) -> str:
    """Return what a job leaves in its process: a segment's outputs, a result, or the judgment of one, by its folder."""
    return f"{'judgment of ' if job['job'] == 'judge' else ''}{job.get('outputs', job['folder'])}"
