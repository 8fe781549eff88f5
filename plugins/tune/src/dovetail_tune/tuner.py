"""The tuner: every candidate is tried, the best few race as whole models, and the fastest within the goals wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin.loading import own_output
from dovetail.text import abbreviated, pluralize

from dovetail_tune.candidates import Candidate, CandidateSet
from dovetail_tune.installed_policies import InstalledPolicy, installed_policies
from dovetail_tune.last_race import LastRace
from dovetail_tune.outcome import Tuned, slower_integers, vague_times
from dovetail_tune.ranking import Ranking
from dovetail_tune.trial import FAILED, NOT_TRIED, CandidateTrial
from dovetail_tune.trial_runner import TrialRunner
from dovetail_tune.tuning_policy import TuningContext

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_tune.data_folders import DataFolders


class Tuner:
    """Tries candidates against the baseline, and lets the best race.

    Args:
        runner: Runs trials.
        candidates: The candidates, the baseline first.
        original: The source model.
        plugins: The plugins, whose policies propose what is tried.
        is_mixed: Whether plans that mix candidates compete.
        progress: Called with (what, done, total).
    """

    def __init__(
        self,
        runner: TrialRunner,
        candidates: CandidateSet,
        original: Model,
        plugins: PluginSet,
        is_mixed: bool,
        progress: Callable[[str, int, int], None] | None = None,
    ):
        self._runner, self._candidates = runner, candidates
        # Policies show their steps, too, and what plugins print is captured.
        self._progress = own_output()(progress) if progress is not None else lambda *_: None
        self._context = TuningContext(original, plugins, candidates, runner, is_mixed, self._step)
        self._known: dict[str, Candidate] = {}
        self._trials: dict[str, CandidateTrial] = {}
        self._done, self._total = 0, len(candidates.found) + 1

    def run(self) -> Tuned:
        """Return the outcome.

        Raises:
            DovetailError: The host cannot run the model, or the time is up before it did.
        """
        runner, whole = self._runner, self._runner.deadline
        policies = installed_policies(self._context)
        try:
            self._try_first(runner.baseline)
            for policy in policies:
                runner.deadline = whole.until(policy.share)
                self._try(policy.proposed(lambda: list(self._trials.values()), self._known))
            runner.deadline = whole
            timed = {name: trial.against.median for name, trial in self._trials.items() if trial.against is not None}
            doubts = _doubts(policies, timed)
            raced = LastRace(runner, self._progress).run(self._trials, doubts)
        finally:
            runner.pool.release()
        first = runner.baseline.name
        turns = raced.result.turns
        ratios = {name: raced.result.ratio(name, first).median for name in turns} if first in turns else {}
        ranking = Ranking(runner, self._trials, raced, doubts | _doubts(policies, ratios))
        ranking.judge()
        return self._outcome(ranking, policies, ratios)

    def _try(self, proposed: Iterator[Candidate]) -> None:
        """Try what is proposed, as many candidates together as the pool takes.

        Once the time is up, or no worker is left, those that compete anyway are still listed as not tried; others may
        have no end.
        """
        competing = frozenset(self._candidates.found)
        while batch := list(islice(proposed, self._runner.pool.at_once)):
            is_over = self._runner.deadline.is_over or self._runner.pool.gone
            if is_over and not competing.intersection(batch):
                break
            self._total = max(self._total, len(competing) + 1, len(self._trials) + len(batch))
            for trial in self._runner.run(batch, self._step):
                self._trials[trial.candidate.name] = trial

    def _try_first(self, first: Candidate) -> None:
        """Try the baseline, without which there is no tuning.

        Raises:
            DovetailError: The host cannot run the model, or the time is up before it did.
        """
        self._known[first.name] = first
        self._try(iter([first]))
        trial = self._trials[first.name]
        if trial.status in (FAILED, NOT_TRIED):
            if self._runner.deadline.is_over:
                untried = f"nothing was tried of {self._total - 1} candidates"
                problem = f"the time was up before the host had run the model, so that {untried}"
                raise DovetailError(problem, "give a larger --budget")
            raise DovetailError(f"the model does not run on {self._runner.pool.place}: {trial.why}")

    def _outcome(self, ranking: Ranking, policies: Sequence[InstalledPolicy], ratios: Mapping[str, float]) -> Tuned:
        """Return the outcome with its notes, and what policies conclude.

        Args:
            ranking: The table and the winner.
            policies: The policies.
            ratios: Times of the last race, relative to the baseline's.
        """
        winner = ranking.winner
        time = None if winner is None else 1.0 if winner.against is None else winner.against.median
        concluded = [policy.conclude(ratios, time) for policy in policies] if ratios else []
        not_tried = tuple(name for name, trial in self._trials.items() if trial.status == NOT_TRIED)
        notes = [
            *self._notes(policies),
            *ranking.notes,
            *vague_times(ranking.entries),
            *slower_integers(ranking.entries, self._candidates, winner),
            *_about_time(not_tried, len(self._trials), self._runner.pool.gone),
        ]
        return Tuned(
            "", ranking.entries, winner, not_tried=not_tried, notes=notes, judged=ranking.judged,
            too_few=ranking.too_few,
            certificate="; ".join(one.certificate for one in concluded if one.certificate),
            front=next((one.front for one in concluded if one.front), ()),
        )  # fmt: skip

    def _notes(self, policies: Sequence[InstalledPolicy]) -> list[str]:
        """Return what limits all figures, and who does not compete, as sentences."""
        runner = self._runner
        others = runner.journal.others
        kept = [f"the journal's figures are of {others}, and are not used"] if others else []
        absent = [f"{name} does not compete: {why}" for name, why in self._candidates.absent.items()]
        proposed = [note for policy in policies for note in policy.notes]
        return [_about_samples(runner.data), *kept, *runner.doubts, *runner.pool.notes, *proposed, *absent]

    def _step(self, what: str) -> None:
        deadline = self._runner.deadline
        left = deadline.elapsed / self._done * (self._total - self._done) if self._done else 0.0
        text = deadline.text or (f" (about {left:.0f} s to go)" if left else "")
        self._progress(f"{what}{text}", self._done, self._total)
        self._done = min(self._done + 1, self._total)


def _doubts(policies: Sequence[InstalledPolicy], ratios: Mapping[str, float]) -> dict[str, str]:
    """Return why candidates must not win, by name.

    Args:
        policies: The policies.
        ratios: The times of candidates, relative to the baseline's.
    """
    asked = [(name, policy.doubt(name, ratio)) for policy in policies for name, ratio in ratios.items()]
    return {name: why for name, why in asked if why}


def _about_samples(data: DataFolders) -> str:
    if data.judge is None:
        return data.text
    return f"the table compares candidates on other samples than the winner's: its {data.text}"


def _about_time(not_tried: Sequence[str], number: int, gone: str) -> list[str]:
    """Return a note that names what was not tried of a number of candidates.

    Args:
        not_tried: Their names.
        number: How many candidates there are.
        gone: Why no worker was left; empty if the time was up.
    """
    if not not_tried:
        return []
    what = f"{len(not_tried)} of {pluralize(number, 'candidate')} were not tried ({abbreviated(', '.join(not_tried))})"
    if gone:
        return [f"{what}: with the same --journal FOLDER, another start tries them"]
    return [f"the time was up: {what}, and more time may find a faster plan"]
