"""The last race: the best few results take turns as whole models, in fresh processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError

from dovetail_tune.outside_data import unknown
from dovetail_tune.race import RaceResult
from dovetail_tune.trial import CandidateTrial
from dovetail_tune.trial_runner import TrialRunner
from dovetail_tune.worker_pool import RaceMeasurement

_FINALISTS = 4  # results that are loaded at the same time
_MEASUREMENTS = 3  # each in fresh processes
_ROUNDS = 20  # of a measurement
_SECONDS = 2.0  # of a measurement at least
_TOLERANCE = 0.03  # a difference that is not worth a longer race
_GRACE = 120.0  # seconds of a measurement, where there is no budget
_CLOSE = 1.1  # a finalist may have taken at most this times what the best one may have, by the quick comparison


@dataclass(frozen=True)
class RacedResults:
    """What the last race gave.

    Attributes:
        result: The race; without turns where there was no time for it.
        memory: The bytes by which the process of each finalist grew.
    """

    result: RaceResult = field(default_factory=RaceResult)
    memory: dict[str, int] = field(default_factory=dict)


class LastRace:
    """Lets the best results race.

    Args:
        runner: Runs trials.
        progress: Called with what is being done, the rounds that were run, and how many there are.
    """

    def __init__(self, runner: TrialRunner, progress: Callable[[str, int, int], None]):
        self._runner, self._progress = runner, progress

    def run(self, trials: Mapping[str, CandidateTrial], doubted: Collection[str]) -> RacedResults:
        """Let the baseline and the best few that meet the goals race; without time for that, nothing races.

        Args:
            trials: All trials, by name.
            doubted: Names of candidates that must not win.

        Raises:
            DovetailError: The race was not measured in time, or the journal is invalid.
            EngineError: Every finalist failed.
        """
        finalists = self._with_time(self._finalists(trials, doubted))
        names = ", ".join(trial.candidate.name for trial in finalists)
        if (known := self._recalled(names, finalists)) is not None:
            return known
        raced = RacedResults()
        result, active, lasts = raced.result, list(finalists), 0.0
        for number in range(_MEASUREMENTS):
            begun = self._runner.deadline.elapsed
            if not active or self._runner.deadline.remaining < lasts or self._runner.pool.gone:
                break
            measured = self._measured(active, number, raced.memory)
            if self._runner.pool.gone:
                break
            result.add(measured)
            lasts = self._runner.deadline.elapsed - begun
            active = [t for t in active if t.candidate.name in result.turns]
            if self._runner.deadline.is_over and (result.failed or not active):
                result.failed.clear()  # for lack of time, of which neither table nor journal speaks
                return raced
            if not active:
                raise EngineError("; ".join(f"{name}: {why}" for name, why in result.failed.items()))
            active = _left(active, result)
            if self._runner.deadline.is_over or len(active) == 1:
                break
        if result.turns and not self._runner.pool.gone:
            self._runner.journal.record("race", names, **result.as_dict(), memory=raced.memory)
        return raced

    def _finalists(self, trials: Mapping[str, CandidateTrial], doubted: Collection[str]) -> list[CandidateTrial]:
        """Return the baseline and the best few that meet the goals."""
        valid = [
            t for t in trials.values()
            if t.is_valid and t.against is not None and t.candidate.name not in doubted
        ]  # fmt: skip
        valid.sort(key=lambda t: t.against.median if t.against else 1.0)
        best = min([1.0, *(t.against.high for t in valid if t.against)])
        close = [t for t in valid if t.against and t.against.low <= best * _CLOSE]
        return [trials[self._runner.baseline.name], *close[: _FINALISTS - 1]]

    def _with_time(self, finalists: Sequence[CandidateTrial]) -> Sequence[CandidateTrial]:
        """Return as many finalists, the best ones, as can be loaded and timed in what is left; none instead of one."""
        each = self._runner.loading_seconds
        left = self._runner.deadline.remaining - _SECONDS - each  # the winner is loaded once more, and judged
        number = int(left / each) if each and left < math.inf else _FINALISTS
        return finalists[:number] if number >= min(2, len(finalists)) else ()

    def _recalled(self, names: str, finalists: Sequence[CandidateTrial]) -> RacedResults | None:
        """Return what the journal says of a race of these finalists; None without such an entry."""
        known = self._runner.journal.find("race", names)
        if known is None:
            return None
        racing = [trial.candidate.name for trial in finalists]
        if (other := unknown({**known["turns"], **known["failed"]}, racing)) or not known["turns"]:
            problem = f"turns: {other!r} did not race" if other else "turns: nobody raced"
            raise self._runner.journal.invalid("race", names, problem)
        return RacedResults(RaceResult.of(known), known["memory"])

    def _measured(self, finalists: Sequence[CandidateTrial], done: int, memory: dict[str, int]) -> RaceResult:
        """Measure finalists in fresh processes, whose luck with memory differs from one measurement to the next."""
        jobs = {trial.candidate.name: self._runner.job("load", trial.candidate) for trial in finalists}
        whole = self._runner.deadline
        limit = _GRACE if math.isinf(whole.remaining) else whole.remaining
        baseline = self._runner.baseline.name
        measurement = RaceMeasurement(jobs, _ROUNDS, _TOLERANCE, baseline, _SECONDS, is_fresh=True, limit=limit)
        pending = self._runner.pool.measure(measurement, whole, lambda rounds: self._racing(done * _ROUNDS + rounds))
        try:
            answer = pending()
        except TimeoutError:
            if whole.is_over:
                return RaceResult()
            hint = "start again with the same --journal FOLDER, when the machines have less to do"
            raise DovetailError(f"the last race was not measured within {limit:.0f} s", hint) from None
        for name, found in answer.found.items():
            if found["bytes"]:
                memory[name] = max(found["bytes"], memory.get(name, 0))
        answer.race.failed |= answer.failed
        return answer.race

    def _racing(self, rounds: int) -> None:
        all_ = _MEASUREMENTS * _ROUNDS
        self._progress(f"last race{self._runner.deadline.text}", min(rounds, all_), all_)


def _left(active: Sequence[CandidateTrial], result: RaceResult) -> list[CandidateTrial]:
    """Set the leader of a race; return the baseline, and what may be as fast as the leader."""
    base = active[0].candidate.name
    result.leader = min((t.candidate.name for t in active), key=lambda name: result.ratio(name, base).median)
    return [
        t for t in active
        if t.candidate.is_baseline or result.ratio(t.candidate.name, result.leader).low <= 1 + _TOLERANCE
    ]  # fmt: skip
