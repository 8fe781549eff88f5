"""Tasks: what a machine of an executor does for a tuning, with plain data in and out.

Preparations may run beside each other; a timing runs alone on its machine. A lock file sees to that, whatever schedules
the tasks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError, user_folder
from dovetail_runtime.machine import fingerprint

from dovetail_tune.answers import Answer
from dovetail_tune.deadline import Deadline
from dovetail_tune.race import RaceResult, Timer, race
from dovetail_tune.worker_pool import Job, RaceMeasurement, WorkerSettings
from dovetail_tune.worker_process import Worker

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a system without it

_LOCK = "timing.lock"
_TURN_LIMIT = 60.0  # seconds of a turn; rounds check the time between turns


def greet(settings: WorkerSettings, paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the fingerprint of the machine, and those of `paths` that do not exist on it."""
    return fingerprint(settings.distributions), [path for path in paths if not Path(path).exists()]


def prepare(settings: WorkerSettings, job: Job, limit: float) -> dict[str, Any]:
    """Do a `prepare` job in a process of its own, beside those of other candidates; return its `Answer` as plain data.

    Args:
        settings: What is known about the tuning.
        job: The job.
        limit: Seconds that it may take.
    """
    answer = Answer(fingerprint(settings.distributions))
    with host_lock(alone=False) as lock, Worker(settings.blocked, lock) as worker:
        try:
            answer.found[""] = worker.ask(dict(job), limit)
        except EngineError as error:
            answer.failed[""] = error.message
    return answer.as_dict()


def measure(settings: WorkerSettings, measurement: RaceMeasurement, limit: float) -> dict[str, Any]:
    """Load or compile results in a process each, and time them alone on the machine; return the `Answer` as plain data.

    Args:
        settings: What is known about the tuning.
        measurement: The results and how to time them.
        limit: Seconds that it may take.
    """
    with host_lock(alone=measurement.rounds > 0) as lock, ExitStack() as stack:
        deadline = Deadline(max(limit, 1e-3))

        def do(_: str, job: Job) -> tuple[Worker, dict[str, Any]]:
            worker = stack.enter_context(Worker(settings.blocked, lock))
            return worker, worker.ask(dict(job), deadline.remaining)

        answer = timed(measurement, settings.callers, do, deadline)
    answer.machine = fingerprint(settings.distributions)
    return answer.as_dict()


def timed(
    measurement: RaceMeasurement,
    callers: int,
    do: Callable[[str, Job], tuple[Worker, dict[str, Any]]],
    deadline: Deadline,
    progress: Callable[[int], None] = lambda _: None,
) -> Answer:
    """Do the jobs of a measurement, and let their results race; the answer does not name the machine.

    Args:
        measurement: The results and how to time them.
        callers: Calls at the same time while timing.
        do: Does a job by the runner's name; returns the process that has the result, and the job's answer.
        deadline: When rounds end; at least one run of each is timed. A turn that is running may take a minute more.
        progress: Called with the number of rounds that were run.
    """
    answer = Answer({})
    timers: dict[str, Timer] = {}
    for name, job in measurement.jobs.items():
        try:
            worker, answer.found[name] = do(name, job)
            timers[name] = _timer(worker, callers, deadline)
        except EngineError as error:
            answer.failed[name] = error.message
    if timers and measurement.rounds:
        rules = measurement.rounds, measurement.tolerance, lambda: deadline.is_over, progress
        try:
            answer.race = race(timers, *rules, measurement.keep, measurement.least)
        except EngineError as error:
            answer.race = RaceResult(failed=dict.fromkeys(timers, error.message))
    answer.failed |= answer.race.failed
    return answer


def _timer(worker: Worker, callers: int, deadline: Deadline) -> Timer:
    """Return what runs the result that a worker has."""

    def timer(runs: int) -> Sequence[float]:
        limit = max(deadline.remaining, _TURN_LIMIT)
        seconds: Sequence[float] = worker.ask({"job": "time", "runs": runs, "callers": callers}, limit)["seconds"]
        return seconds

    return timer


@contextmanager
def host_lock(alone: bool) -> Iterator[int]:
    """Hold this machine for a timing alone, or share it with preparations; yield the descriptor of the lock.

    A process that inherits the descriptor keeps the lock until it ends, so that no timing begins beside what a machine
    still computes after its worker died.

    Raises:
        DovetailError: The lock file cannot be opened.
    """
    lock = None
    while lock is None:
        lock = _locked(alone)
    try:
        yield lock
    finally:
        os.close(lock)


def _locked(alone: bool) -> int | None:
    """Open and lock the machine's lock file; None if it was removed meanwhile, as what nobody holds is.

    Without `fcntl` nothing is locked, and timings of several programs may disturb each other.
    """
    folder = user_folder(make=True)
    if folder is None:  # in a folder that others can write to, they could hold the lock
        place = tempfile.gettempdir()
        problem = f"the lock for timings cannot be made: no folder in {place} is this user's alone"
        raise DovetailError(problem, "set TMPDIR to a folder of your own")
    path = folder / _LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_NOFOLLOW if fcntl is not None else 0), 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DovetailError(f"{path}: the lock for timings cannot be opened: {error}", "set TMPDIR") from None
    if fcntl is not None:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        if os.path.samestat(os.stat(path), os.fstat(lock)):
            return lock
    except FileNotFoundError:
        pass
    os.close(lock)
    return None
