"""The table of a tuning and its winner: the fastest that meets the goals on samples that no candidate saw."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from dovetail_tune.last_race import RacedResults
from dovetail_tune.outcome import TunedCandidate
from dovetail_tune.trial import FAILED, CandidateTrial
from dovetail_tune.trial_runner import TrialRunner
from dovetail_tune.verdict import doubts_of, winner_of, winner_of_comparisons

_JUDGED = 2  # results that the samples which judge may see, besides the baseline


class Ranking:
    """Orders what was tried, and finds the winner.

    Args:
        runner: Runs trials, and judges.
        trials: All trials, by name.
        raced: The last race.
        doubts: Why candidates must not win, by name.

    Attributes:
        entries: Every candidate, fastest first; those without a time last.
        winner: The fastest that meets the goals; None if none does.
        judged: What the winner has on samples that no candidate saw, in words; empty if it was not judged on any.
        too_few: Why the goal is not called met although the winner does not miss it, as a clause; empty if it is.
        notes: How sure the winner is, as sentences.
    """

    def __init__(
        self,
        runner: TrialRunner,
        trials: Mapping[str, CandidateTrial],
        raced: RacedResults,
        doubts: Mapping[str, str],
    ):
        self._runner, self._trials, self._race, self._doubts = runner, trials, raced.result, doubts
        self._base = runner.baseline.name
        base = self._race.seconds(self._base) if self._base in self._race.turns else self._quick_seconds()
        self.entries = [self._entry(trial, base, raced.memory) for trial in trials.values()]
        self.entries.sort(key=lambda e: (e.seconds is None, e.seconds or 0.0))
        self.winner: TunedCandidate | None = None
        self.judged, self.too_few = "", runner.data.too_few
        self.notes: list[str] = []

    def judge(self) -> None:
        """Find the winner.

        Raises:
            LostError: No machine answers.
        """
        raced = [e for e in self.entries if e.candidate.name in self._race.turns and e.meets]
        self.winner, self.judged = self._judged_winner(raced)
        if self.winner is None:
            return
        if not self.judged and not self.too_few:
            lacking = "no device was left" if self._runner.pool.gone else "no time was left"
            self.too_few = f"{lacking} to judge the result on samples that no candidate saw"
        self.winner.remark = f"the fastest {'that does not miss' if self.too_few else 'within'} the goal"
        if self.winner in raced:
            self.notes += doubts_of(self.winner, [e for e in raced if e.meets], self._race)
        else:
            why = "the device was gone" if self._runner.pool.gone else "the time was up"
            self.notes.append(f"{why} before the last race, so that the quick comparisons decide")

    def _entry(self, trial: CandidateTrial, base: float | None, memory: Mapping[str, int]) -> TunedCandidate:
        """Return the row of a trial, whose time is that of the last race, or by the quick comparison.

        Args:
            trial: The trial.
            base: Seconds of the baseline; None if it was not timed.
            memory: What each finalist takes.
        """
        name, race = trial.candidate.name, self._race
        entry = TunedCandidate(
            trial.candidate, None, None, trial.snr_db, trial.answers, trial.bytes, memory.get(name), trial.engines,
            _remark(trial), trial.is_valid and name not in race.failed and name not in self._doubts,
        )  # fmt: skip
        if name in race.turns:
            entry.seconds, entry.spread = race.seconds(name), race.spread(name)
            if name != self._base and self._base in race.turns:
                entry.against = race.ratio(name, self._base)
        elif name in race.failed:
            entry.remark = f"left out: {race.failed[name]}"
        elif trial.against is not None:
            entry.against = trial.against
            if base is not None:
                entry.seconds, entry.spread = base * trial.against.median, trial.against.spread
        elif name == self._base:
            entry.seconds = base
            entry.spread = min((t.against.spread for t in self._trials.values() if t.against), default=math.inf)
        entry.remark = self._doubts.get(name, entry.remark)
        return entry

    def _judged_winner(self, raced: Sequence[TunedCandidate]) -> tuple[TunedCandidate | None, str]:
        """Return the fastest entry that meets the goals on the samples that no candidate saw, and its figure there.

        At most two entries are shown to these samples, and then the baseline, or they would choose the winner.
        """
        tries = 0
        while True:
            meeting = [entry for entry in self.entries if entry.meets]
            if tries == _JUDGED:
                meeting = [entry for entry in meeting if entry.candidate.is_baseline]
            running = [entry for entry in raced if entry in meeting]
            winner = winner_of(running, self._race) if running else winner_of_comparisons(meeting)
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


def _remark(trial: CandidateTrial) -> str:
    if trial.status == FAILED:
        return f"left out: {trial.why}"
    return trial.why or "; ".join(trial.missed)
