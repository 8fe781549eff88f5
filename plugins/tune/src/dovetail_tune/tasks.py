"""Tasks: what a machine of an executor does for a tuning, with plain data in and out.

Conversions may run beside each other; a timing runs alone on its machine. A lock file sees to that, whatever schedules
the tasks.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail.plugin import user_folder
from dovetail_runtime.machine import fingerprint

from dovetail_tune.answers import Answer
from dovetail_tune.race import RaceResult, Turn, race
from dovetail_tune.worker_process import Worker, WorkerError

_LOCK = f"dovetail-timing-{os.getuid()}.lock"
TURN_LIMIT = 60.0  # seconds of a turn; rounds check the time between turns
Job = Mapping[str, Any]


@dataclass(frozen=True)
class Rules:
    """How a race is run; see `dovetail_tune.race.race`.

    Attributes:
        rounds: The most rounds; 0 to prepare the results and time nothing.
        tolerance: How much slower than the leader a runner may be and stay in the race.
        keep: A runner that never drops out.
        least: Seconds before anything is decided.
    """

    rounds: int
    tolerance: float = 0.0
    keep: str = ""
    least: float = 0.0


@dataclass(frozen=True)
class Place:
    """What tasks are told about the tuning.

    Attributes:
        blocked: Plugins to leave out.
        callers: Calls at the same time while timing.
        distributions: What the versions of a machine's fingerprint are of.
    """

    blocked: tuple[str, ...] = ()
    callers: int = 1
    distributions: tuple[str, ...] = ()


def greet(place: Place, paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the fingerprint of the machine, and those of `paths` that do not exist on it."""
    return fingerprint(place.distributions), [path for path in paths if not Path(path).exists()]


def convert(place: Place, job: Job, limit: float) -> Answer:
    """Do a `prepare` job in a process of its own, beside other conversions.

    Args:
        place: What is known about the tuning.
        job: The job.
        limit: Seconds that it may take.
    """
    with host_lock(alone=False) as lock, Worker(place.blocked, lock) as worker:
        found, failed = {}, {}
        try:
            found[""] = worker.ask(dict(job), limit)
        except WorkerError as error:
            failed[""] = error.message
    return Answer(fingerprint(place.distributions), found, RaceResult(""), failed)


def compare(place: Place, jobs: Mapping[str, Job], rules: Rules, limit: float) -> Answer:
    """Load or compile results in a process each, and let them race, with nothing beside them on the machine.

    Args:
        place: What is known about the tuning.
        jobs: A `load` or `segment` job by the runner's name.
        rules: The rules of the race.
        limit: Seconds that each job may take, and the race.
    """
    with host_lock(alone=rules.rounds > 0) as lock:
        answer = loaded_and_raced(place, jobs, rules, limit, lock)
    answer.machine = fingerprint(place.distributions)
    return answer


def loaded_and_raced(
    place: Place,
    jobs: Mapping[str, Job],
    rules: Rules,
    limit: float,
    lock: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _: None,
) -> Answer:
    """Do jobs in a process each, and let their results race, in this process and without a lock of its own.

    Args:
        place: What is known about the tuning.
        jobs: A `load` or `segment` job by the runner's name.
        rules: The rules of the race.
        limit: Seconds that each job may take.
        lock: The machine's lock, which the processes hold as well.
        is_over: Whether the time is up; at least one round is run.
        progress: Called with the number of rounds that were run.
    """
    answer = Answer({}, {}, RaceResult(""), {})
    with ExitStack() as stack:
        turns: dict[str, Turn] = {}
        for name, job in jobs.items():
            worker = stack.enter_context(Worker(place.blocked, lock))
            try:
                answer.found[name] = worker.ask(dict(job), limit)
                turns[name] = turn_of(worker, place.callers, limit)
            except WorkerError as error:
                answer.failed[name] = error.message
        if turns and rules.rounds:
            try:
                answer.race = race(turns, rules.rounds, rules.tolerance, is_over, progress, rules.keep, rules.least)
            except WorkerError as error:
                answer.race = RaceResult("", failed=dict.fromkeys(turns, error.message))
    answer.failed |= answer.race.failed
    return answer


def turn_of(worker: Worker, callers: int, limit: float) -> Turn:
    """Return what runs the result that a worker holds.

    Args:
        worker: The worker.
        callers: Calls at the same time.
        limit: Seconds that a turn may take, if more than a minute.
    """

    def run(runs: int) -> list[float]:
        return worker.ask({"job": "time", "runs": runs, "callers": callers}, max(limit, TURN_LIMIT))["seconds"]

    return run


@contextmanager
def host_lock(alone: bool) -> Iterator[int]:
    """Hold this machine for a timing alone, or share it with other conversions; yield the descriptor of the lock.

    A process that inherits the descriptor keeps the lock until it ends, so that no timing begins beside what a machine
    still computes after its worker died.

    Raises:
        DovetailError: The lock file cannot be opened.
    """
    lock = None
    while lock is None:
        lock = _locked(fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield lock
    finally:
        os.close(lock)


def _locked(kind: int) -> int | None:
    """Open and lock the machine's lock file; None if it was removed meanwhile, as what nobody holds is."""
    folder = user_folder(make=True)
    path = (folder or Path(tempfile.gettempdir())) / _LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        if folder is None:
            raise DovetailError(f"{path}: the lock for timings cannot be made", "set TMPDIR") from None
        return None
    except OSError as error:
        raise DovetailError(f"{path}: the lock for timings cannot be opened: {error}", "set TMPDIR") from None
    fcntl.flock(lock, kind)
    try:
        if os.path.samestat(os.stat(path), os.fstat(lock)):
            return lock
    except FileNotFoundError:
        pass
    os.close(lock)
    return None
