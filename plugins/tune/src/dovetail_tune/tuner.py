"""The tuner: every candidate is tried, the best few race as whole models, and the fastest within the goals wins."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError
from dovetail.plugin.loading import proposals
from dovetail.text import abbreviated, pluralize

from dovetail_tune.candidates import Candidate, CandidateSet
from dovetail_tune.mixing import Mixing
from dovetail_tune.outcome import Tuned, TunedCandidate, slower_integers
from dovetail_tune.outside_data import unknown
from dovetail_tune.policies import MIXING, TRYING, Combined, Listed, Mixed, Raised, TuningPolicy
from dovetail_tune.race import RaceResult
from dovetail_tune.trial import FAILED, NOT_TRIED, CandidateTrial
from dovetail_tune.trial_runner import TrialRunner
from dovetail_tune.verdict import doubts_of, winner_of, winner_of_comparisons
from dovetail_tune.worker_pool import RaceMeasurement

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_tune.data_folders import DataFolders

_FINALISTS = 4  # results that are loaded at the same time in the last race
_MEASUREMENTS = 3  # of the last race, each in fresh processes
_ROUNDS = 20  # of a measurement
_SECONDS = 2.0  # of a measurement at least
_TOLERANCE = 0.03  # a difference that is not worth a longer race
_GRACE = 120.0  # seconds of a measurement of the last race, where there is no budget
_JUDGED = 2  # results that the samples which judge may see, besides the baseline
_CLOSE = 1.1  # a finalist may have taken at most this times what the best one may have, by the quick comparison


class Tuner:
    """Tries candidates against the baseline, and lets the best race.

    Args:
        runner: Runs trials.
        candidates: The candidates, the baseline first.
        original: The source model.
        plugins: The plugins.
        progress: Called with (what, done, total).
    """

    def __init__(
        self,
        runner: TrialRunner,
        candidates: CandidateSet,
        original: Model,
        plugins: PluginSet,
        progress: Callable[[str, int, int], None] | None = None,
    ):
        self._runner, self._candidates, self._original, self._plugins = runner, candidates, original, plugins
        self._progress = progress
        self._trials: dict[str, CandidateTrial] = {}
        self._done, self._total = 0, len(candidates.found) + 1
        self._notes = [_about_samples(runner.data)]
        self._certified: Mixing | None = None
        self._doubts: dict[str, str] = {}  # about mixtures that did not take what was predicted

    def run(self, mixed: bool) -> Tuned:
        """Return the outcome.

        Args:
            mixed: Whether plans that mix candidates compete.

        Raises:
            DovetailError: The host cannot run the model, or the time is up before it did.
        """
        runner = self._runner
        if runner.journal.others:
            self._notes.append(f"the journal's figures are of {runner.journal.others}, and are not used")
        first, whole = runner.baseline, runner.deadline
        mixing = Mixing(runner, self._original, self._plugins, self._step) if mixed else None
        try:
            self._try_first(first)
            for policy in self._policies(mixing):
                runner.deadline = whole.until(policy.share)
                self._follow(policy)
            runner.deadline = whole
            self._doubt(mixing, {name: t.against.median for name, t in self._trials.items() if t.against is not None})
            result, memory = self._last_race(first)
        finally:
            runner.pool.release()
        self._notes += [*runner.doubts, *runner.pool.notes, *(mixing.notes if mixing is not None else ())]
        if mixing is not None and first.name in result.turns:
            ratios = {name: result.ratio(name, first.name).median for name in result.turns}
            self._doubt(mixing, ratios)
            mixing.certify(ratios, whole.remaining)
            self._certified = mixing
        return self._outcome(first, result, memory)

    def _policies(self, mixing: Mixing | None) -> Iterator[TuningPolicy]:
        """Yield what is tried after the baseline, in order.

        Raising what misses the goal by little gains more than other options do, and than mixtures.
        """
        yield Listed(self._candidates.defaults, MIXING)
        yield Raised(self._runner, MIXING, is_last=False)
        yield Listed(self._candidates.others, TRYING)
        yield Raised(self._runner, TRYING, is_last=True)
        yield Combined(self._plugins.registry, self._candidates, TRYING)
        if mixing is not None:
            yield Mixed(mixing, MIXING)

    def _doubt(self, mixing: Mixing | None, ratios: Mapping[str, float]) -> None:
        """Note which mixtures did not take what was predicted, by their times relative to the baseline's."""
        if mixing is not None:
            self._doubts |= {name: why for name, ratio in ratios.items() if (why := mixing.doubt(name, ratio))}

    def _follow(self, policy: TuningPolicy) -> None:
        """Try what a policy proposes, as many candidates together as the pool takes."""

        def repeated(candidate: Candidate) -> None:
            self._notes.append(f"{policy.name}: '{candidate.name}' was proposed twice, and nothing after it was tried")

        proposed = proposals(lambda: policy.propose(list(self._trials.values())), repeated)
        known = len(self._candidates.found)
        while batch := list(islice(proposed, self._runner.pool.at_once)):
            self._total = max(self._total, known + 1, len(self._trials) + len(batch))
            for trial in self._runner.run(batch, self._step):
                self._trials[trial.candidate.name] = trial

    def _try_first(self, first: Candidate) -> None:
        """Try the baseline, without which there is no tuning.

        Raises:
            DovetailError: The host cannot run the model, or the time is up before it did.
        """
        self._follow(Listed([first]))
        trial = self._trials[first.name]
        if trial.status in (FAILED, NOT_TRIED):
            if self._runner.deadline.is_over:
                why = (
                    f"the time was up before the host had run the model, so that nothing was tried of {self._total - 1}"
                )
                raise DovetailError(f"{why} candidates", "give a larger --budget")
            raise DovetailError(f"the model does not run on the host: {trial.why}")

    def _finalists(self, first: Candidate) -> list[CandidateTrial]:
        """Return the baseline and the best few that meet the goals."""
        valid = [
            t for t in self._trials.values()
            if t.is_valid and t.against is not None and t.candidate.name not in self._doubts
        ]  # fmt: skip
        valid.sort(key=lambda t: t.against.median if t.against else 1.0)
        best = min([1.0, *(t.against.high for t in valid if t.against)])
        close = [t for t in valid if t.against and t.against.low <= best * _CLOSE]
        return [self._trials[first.name], *close[: _FINALISTS - 1]]

    def _last_race(self, first: Candidate) -> tuple[RaceResult, dict[str, int]]:
        """Let the finalists race in fresh processes; return the race, and the memory of each.

        Without time for that, nothing races, and the quick comparisons decide.
        """
        finalists = self._with_time(self._finalists(first))
        names = [trial.candidate.name for trial in finalists]
        known = self._runner.journal.find("race", ", ".join(names))
        if known is not None:
            if (other := unknown({**known["turns"], **known["failed"]}, names)) or not known["turns"]:
                problem = f"turns: {other!r} did not race" if other else "turns: nobody raced"
                raise self._runner.journal.invalid("race", ", ".join(names), problem)
            return RaceResult.of(known), known["memory"]
        memory: dict[str, int] = {}
        result = RaceResult()
        active = list(finalists)
        lasts = 0.0
        for number in range(_MEASUREMENTS):
            begun = self._runner.deadline.elapsed
            if not active or self._runner.deadline.remaining < lasts:
                break
            result.add(self._measured(active, first, number, memory))
            lasts = self._runner.deadline.elapsed - begun
            active = [t for t in active if t.candidate.name in result.turns]
            if self._runner.deadline.is_over and (result.failed or not active):
                result.failed.clear()  # for lack of time, of which neither table nor journal speaks
                return result, memory
            if not active:
                raise EngineError("; ".join(f"{name}: {why}" for name, why in result.failed.items()))
            base = active[0].candidate.name
            result.leader = min((t.candidate.name for t in active), key=lambda name: result.ratio(name, base).median)
            active = [
                t for t in active
                if t.candidate.is_baseline or result.ratio(t.candidate.name, result.leader).low <= 1 + _TOLERANCE
            ]  # fmt: skip
            if self._runner.deadline.is_over or len(active) == 1:
                break
        if result.turns:
            self._runner.journal.record("race", ", ".join(names), **result.as_dict(), memory=memory)
        return result, memory

    def _with_time(self, finalists: Sequence[CandidateTrial]) -> Sequence[CandidateTrial]:
        """Return as many finalists, the best ones, as can be loaded and timed in what is left; none instead of one."""
        each = self._runner.loading_seconds
        left = self._runner.deadline.remaining - _SECONDS - each  # the winner is loaded once more, and judged
        number = int(left / each) if each and left < math.inf else _FINALISTS
        return finalists[:number] if number >= min(2, len(finalists)) else ()

    def _measured(
        self, finalists: Sequence[CandidateTrial], first: Candidate, done: int, memory: dict[str, int]
    ) -> RaceResult:
        """Measure finalists in fresh processes, whose luck with memory differs from one measurement to the next."""
        jobs = {trial.candidate.name: self._runner.job("load", trial.candidate) for trial in finalists}
        whole = self._runner.deadline
        limit = _GRACE if math.isinf(whole.remaining) else whole.remaining
        measurement = RaceMeasurement(jobs, _ROUNDS, _TOLERANCE, first.name, _SECONDS, is_fresh=True, limit=limit)
        pending = self._runner.pool.measure(measurement, whole, lambda rounds: self._racing(done * _ROUNDS + rounds))
        try:
            answer = pending()
        except TimeoutError:
            if whole.is_over:
                return RaceResult()
            hint = "start again with the same --journal FOLDER, when the machines have less to do"
            raise DovetailError(f"the last race was not measured within {limit:.0f} s", hint) from None
        for name, found in answer.found.items():
            memory[name] = max(found["bytes"], memory.get(name, 0))
        answer.race.failed |= answer.failed
        return answer.race

    def _outcome(self, first: Candidate, result: RaceResult, memory: dict[str, int]) -> Tuned:
        entries = []
        base = result.seconds(first.name) if first.name in result.turns else self._quick_seconds()
        for name, trial in self._trials.items():
            entry = TunedCandidate(
                trial.candidate, None, None, trial.snr_db, trial.answers, trial.bytes, memory.get(name), trial.engines,
                _remark(trial), trial.is_valid,
            )  # fmt: skip
            if name in result.turns:
                entry.seconds = result.seconds(name)
                if name != first.name and first.name in result.turns:
                    entry.against = result.ratio(name, first.name)
            elif name in result.failed:
                entry.remark = f"left out: {result.failed[name]}"
            elif trial.against is not None:
                entry.against = trial.against
                entry.seconds = None if base is None else base * trial.against.median
            elif name == first.name:
                entry.seconds = base
            if name in self._doubts:
                entry.remark = self._doubts[name]
            entry.meets = entry.meets and name not in result.failed and name not in self._doubts
            entries.append(entry)
        entries.sort(key=lambda e: (e.seconds is None, e.seconds or 0.0))
        for name, why in self._candidates.absent.items():
            self._notes.append(f"{name} does not compete: {why}")
        raced = [e for e in entries if e.candidate.name in result.turns and e.meets]
        winner, judged = self._judged_winner(entries, raced, result)
        if winner is not None and winner not in raced:
            self._notes.append("the time was up before the last race, so that the quick comparisons decide")
        too_few = self._runner.data.too_few
        if winner is not None:
            if not judged and not too_few:
                too_few = "no time was left to judge the result on samples that no candidate saw"
            winner.remark = "the fastest that does not miss the goal" if too_few else "the fastest within the goal"
            self._notes += doubts_of(winner, [e for e in raced if e.meets], result) if winner in raced else []
        self._notes += slower_integers(entries, self._candidates, winner)
        not_tried = [name for name, trial in self._trials.items() if trial.status == NOT_TRIED]
        if not_tried:
            what = abbreviated(", ".join(not_tried))
            why = f"the time was up: {len(not_tried)} of {pluralize(len(self._trials), 'candidate')} were not tried"
            self._notes.append(f"{why} ({what}), and more time may find a faster plan")
        return Tuned(
            "",
            entries,
            winner,
            not_tried=tuple(not_tried),
            notes=self._notes,
            judged=judged,
            too_few=too_few,
            certificate=self._certificate(winner),
            front=() if self._certified is None else self._certified.front,
        )

    def _judged_winner(
        self, entries: Sequence[TunedCandidate], raced: list[TunedCandidate], result: RaceResult
    ) -> tuple[TunedCandidate | None, str]:
        """Return the fastest entry that meets the goals on the samples that no candidate saw, and its figure there.

        At most two entries are shown to these samples, and then the baseline, or they would choose the winner.
        """
        tries = 0
        while True:
            meeting = [entry for entry in entries if entry.meets]
            if tries == _JUDGED:
                meeting = [entry for entry in meeting if entry.candidate.is_baseline]
            running = [entry for entry in raced if entry in meeting]
            winner = winner_of(running, result) if running else winner_of_comparisons(meeting)
            if winner is None:
                return None, ""
            judgment = self._runner.judged(winner.candidate)
            if judgment is None:
                return winner, ""
            if not judgment.missed:
                return winner, judgment.figure
            tries += 1
            winner.meets = False
            winner.remark = f"on samples that no candidate saw: {'; '.join(judgment.missed)}"

    def _quick_seconds(self) -> float | None:
        """Return the seconds of the baseline by the quick comparisons; None without any."""
        timed = [t.run_seconds / t.against.median for t in self._trials.values() if t.against and t.run_seconds]
        return statistics.median(timed) if timed else None

    def _certificate(self, winner: TunedCandidate | None) -> str:
        """Say how far the winner is from the bound."""
        mixing = self._certified
        if mixing is not None and mixing.unproven:
            return f"no certificate: {mixing.unproven}"
        if mixing is None or mixing.bound is None or winner is None:
            return ""
        gap = (1.0 if winner.against is None else winner.against.median) / mixing.bound - 1
        measured = f"these measurements of {mixing.segments} segments allow (by HiGHS)"
        return f"within {100 * max(0.0, gap):.0f} % of the best that {measured}, {mixing.error}"

    def _racing(self, rounds: int) -> None:
        if self._progress:
            self._progress(
                f"last race{self._runner.deadline.text}", min(rounds, _MEASUREMENTS * _ROUNDS), _MEASUREMENTS * _ROUNDS
            )

    def _step(self, what: str) -> None:
        if self._progress:
            deadline = self._runner.deadline
            left = deadline.elapsed / self._done * (self._total - self._done) if self._done else 0.0
            text = deadline.text or (f" (about {left:.0f} s to go)" if left else "")
            self._progress(f"{what}{text}", self._done, self._total)
        self._done = min(self._done + 1, self._total)


def _about_samples(data: DataFolders) -> str:
    if data.judge is None:
        return data.text
    return f"the table compares candidates on other samples than the winner's: its {data.text}"


def _remark(trial: CandidateTrial) -> str:
    if trial.status == FAILED:
        return f"left out: {trial.why}"
    return trial.why or "; ".join(trial.missed)
