"""Pools of workers: the contract of what compiles and times candidates, here or on other machines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from dovetail_tune.answers import Answer
    from dovetail_tune.deadline import Deadline

Job = Mapping[str, Any]
"""What a worker does, as plain data; see `dovetail_tune.worker`."""

Pending: TypeAlias = "Callable[[], Answer]"
"""Waits for the answer of a task that was submitted.

It raises `TimeoutError` when the time is up, and `LostError` if no machine answers.
"""


@dataclass(frozen=True)
class WorkerSettings:
    """What all workers of a tuning are told.

    Attributes:
        blocked: Plugins to leave out, as after `--no-plugin`.
        callers: Calls at the same time while timing.
        distributions: The distributions whose versions belong to a machine's fingerprint.
    """

    blocked: tuple[str, ...] = ()
    callers: int = 1
    distributions: tuple[str, ...] = ()


@dataclass(frozen=True)
class RaceMeasurement:
    """Results that are timed in turns, on one machine; see `dovetail_tune.race.race`.

    Attributes:
        jobs: A `load` or `segment` job by the runner's name.
        rounds: The most rounds; 0 to do the jobs and time nothing.
        tolerance: How much slower than the leader a runner may be and stay in the race.
        keep: A runner that never drops out.
        least: Seconds before anything is decided.
        is_fresh: Whether each result runs in a new process, with no others beside these.
        limit: Seconds that it may take; None for what is left of the budget.
    """

    jobs: Mapping[str, Job]
    rounds: int
    tolerance: float = 0.0
    keep: str = ""
    least: float = 0.0
    is_fresh: bool = False
    limit: float | None = None


class WorkerPool(ABC):
    """Workers that prepare candidates and time results, whatever machines they are on.

    A task is plain data. Its answer is asked for later, so that a pool may do tasks beside each other; a timing has its
    machine for itself. All answers are those of one kind of machine.

    Args:
        settings: What workers are told.
        machine: Fingerprint of the machines; times of others are not used.

    Attributes:
        settings, machine: As given.
        at_once: How many tasks to submit before the first answer is asked for.
        notes: What happened to tasks, as sentences.
        place: Where results run, for messages.
        gone: Why no task is done any more, as a clause; empty while tasks are done.
    """

    at_once = 1
    place = "the host"

    def __init__(self, settings: WorkerSettings, machine: Mapping[str, str]):
        self.settings, self.machine = settings, machine
        self.notes: list[str] = []
        self.gone = ""

    @abstractmethod
    def prepare(self, job: Job, deadline: Deadline) -> Pending:
        """Submit a `prepare` job, which compiles a candidate and measures its accuracy.

        Args:
            job: The job; its answer has the name "".
            deadline: The time that is left.
        """

    @abstractmethod
    def measure(
        self, measurement: RaceMeasurement, deadline: Deadline, progress: Callable[[int], None] = lambda _: None
    ) -> Pending:
        """Submit a measurement. What fails in it is left out of the race, and the answer says why.

        Args:
            measurement: The results and how to time them.
            deadline: The time that is left.
            progress: Called with the number of rounds that were run, if the pool knows.
        """

    def check_paths(self, paths: Sequence[str]) -> None:  # noqa: B027, need not be overridden
        """Check that workers see these files and folders; those on this machine do.

        Raises:
            DovetailError: They do not.
        """

    def release(self, runners: Collection[str] | None = None) -> None:  # noqa: B027, need not be overridden
        """Stop the processes that are kept for the next measurement.

        Args:
            runners: Names of runners; None for everything, what prepares candidates included.
        """
