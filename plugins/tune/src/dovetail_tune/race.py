"""Races: loaded results take turns, and those that are clearly slower than the leader drop out."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.plugin import EngineError

from dovetail_tune.statistics_of_pairs import FEWEST_PAIRS, Ratio, ratio_of
from dovetail_tune.worker import LONG

TURN = 0.03  # seconds that a turn of the fastest should last, so that the clock and switching processes do not count
LONGEST_TURN = 0.3  # seconds of the slowest, if it runs more than once
MOST_RUNS = 50
NARROW = 0.01  # spread at which more rounds say nothing new

Timer = Callable[[int], Sequence[float]]
"""Runs a result a number of times, and returns the seconds of each run."""


@dataclass
class RaceResult:
    """The outcome of a race.

    Attributes:
        leader: The fastest, by the median of the ratios to it; empty if nothing was timed.
        turns: Seconds of the fastest run of each turn, by name; rounds that a runner missed are absent at the end.
        failed: Why a runner failed while it was timed, by name.
        measurements: The turns of each measurement, if several were added up.
    """

    leader: str = ""
    turns: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    measurements: list[dict[str, list[float]]] = field(default_factory=list)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RaceResult:
        """Return the result that `as_dict` gave as plain data."""
        return cls(data["leader"], data["turns"], data["failed"], data["heats"])

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the journal, and for answers of other machines."""
        return {"leader": self.leader, "turns": self.turns, "failed": self.failed, "heats": self.measurements}

    def seconds(self, name: str) -> float:
        """Return the median seconds over the turns."""
        return statistics.median(self.turns[name])

    def spread(self, name: str) -> float:
        """Return half the width of the 95 % interval of the median turn, relative to it; infinite for a few turns."""
        return ratio_of(self.turns[name], [1.0] * len(self.turns[name])).spread

    def add(self, other: RaceResult) -> None:
        """Append the turns of another measurement; a runner that failed in one of them has none.

        Rounds of a runner that dropped out earlier are paired with those of the same measurement only.
        """
        self.failed |= other.failed
        self.measurements.append(dict(other.turns))
        self.turns = {
            name: [second for one in self.measurements for second in one.get(name, ())]
            for name in {**self.turns, **other.turns}
            if name not in self.failed
        }

    def ratio(self, name: str, other: str) -> Ratio:
        """Return the ratio of two runners' times in the rounds that both ran."""
        ours: list[float] = []
        theirs: list[float] = []
        for turns in self.measurements or [self.turns]:
            rounds = min(len(turns.get(name, ())), len(turns.get(other, ())))
            ours += turns.get(name, [])[:rounds]
            theirs += turns.get(other, [])[:rounds]
        return ratio_of(ours, theirs)


def race(
    runners: Mapping[str, Timer],
    rounds: int,
    tolerance: float = 0.0,
    is_over: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _: None,
    keep: str = "",
    least: float = 0.0,
) -> RaceResult:
    """Let runners take turns, in alternating order, until one is clearly the fastest or the rest is noise.

    A runner drops out if the interval of its ratio to the leader lies above 1 + `tolerance`. All make the same number
    of runs in a turn: the fastest of many runs is faster than the fastest of a few.

    Args:
        runners: What runs a result, by name.
        rounds: The most rounds.
        tolerance: How much slower a runner may be and stay in the race.
        is_over: Whether the time is up. Then the runs that find out how long a turn is are the only round.
        progress: Called with the number of rounds that were run.
        keep: A runner that never drops out.
        least: Seconds before anything is decided. Other load on the machine comes in phases, and a race within one
            phase measures that phase, with a narrow interval.

    Raises:
        EngineError: Every runner failed.
    """
    result = RaceResult()
    quick = _probed(runners, is_over, result.failed)
    active = list(quick)
    if active and is_over():
        result.turns = {name: [seconds] for name, seconds in quick.items()}
        result.leader = _leader(result, active)
        active = []
    else:
        result.turns = {name: [] for name in active}
    begun = time.monotonic()
    for number in itertools.count():
        lasted = time.monotonic() - begun >= least
        if not active or (number and is_over()) or (lasted and number >= rounds):
            break
        runs = _runs([quick[name] for name in active])
        for name in list(active if number % 2 == 0 else reversed(active)):
            if number and is_over():
                break
            try:
                # Interference only adds time, so the fastest run of a turn is the least disturbed one.
                seconds = min(runners[name](runs))
                result.turns[name].append(seconds)
                quick[name] = min(quick[name], seconds)
            except EngineError as error:
                active.remove(name)
                del result.turns[name]
                result.failed[name] = error.message
        progress(number + 1)
        if not active:
            break
        result.leader = _leader(result, active)
        if number + 1 >= FEWEST_PAIRS and lasted:
            ratios = {name: result.ratio(name, result.leader) for name in active if name != result.leader}
            active = [
                name for name in active
                if name in (result.leader, keep) or ratios[name].low <= 1 + tolerance
            ]  # fmt: skip
            if all(ratios[name].spread <= NARROW for name in active if name != result.leader):
                break
    if not result.turns:
        raise EngineError("; ".join(f"{name}: {why}" for name, why in result.failed.items()) or "nothing was timed")
    return result


def _probed(runners: Mapping[str, Timer], is_over: Callable[[], bool], failed: dict[str, str]) -> dict[str, float]:
    """Return the seconds of a run of each runner, the faster of two if none takes long; add those that fail."""
    found: dict[str, float] = {}
    for _ in range(2):
        for name, timer in runners.items():
            if name not in failed:
                try:
                    (seconds,) = timer(1)
                    found[name] = min(seconds, found.get(name, math.inf))
                except EngineError as error:
                    found.pop(name, None)
                    failed[name] = error.message
        if max(found.values(), default=0.0) >= LONG or is_over():
            break
    return found


def _runs(quick: Sequence[float]) -> int:
    """Return the number of runs in a turn, by the seconds of a run of each runner."""
    wanted, bearable = math.ceil(TURN / max(min(quick), 1e-6)), int(LONGEST_TURN / max(*quick, 1e-6))
    return max(1, min(MOST_RUNS, wanted, bearable))


def _leader(result: RaceResult, active: Sequence[str]) -> str:
    """Return the active runner whose median ratio to the first one is the smallest."""
    return min(active, key=lambda name: result.ratio(name, active[0]).median)
