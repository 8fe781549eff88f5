"""What a tuning tries, in which order: policies that propose candidates by what others gave."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from dovetail.passes import BackendChoice
from dovetail.plugin import Proposer

from dovetail_tune.candidates import Candidate, CandidateSet, combinations_of
from dovetail_tune.mixing import Mixing
from dovetail_tune.trial import PREPARED, CandidateTrial

if TYPE_CHECKING:
    from dovetail.plugin import Registry

    from dovetail_tune.trial_runner import TrialRunner

TRYING, MIXING = 0.6, 0.8  # shares of the budget after which options and mixtures are no longer tried
_SEARCH = 12  # compilations in the time of a search for nodes to raise: measured as 5 to 12


class TuningPolicy(Proposer[Candidate, CandidateTrial]):
    """Proposes candidates; several of them may be tried at the same time, so that trials come later.

    Args:
        share: The share of the budget after which it proposes nothing more.
    """

    def __init__(self, share: float):
        self.share = share


class Listed(TuningPolicy):
    """Proposes the candidates of a list."""

    name: ClassVar[str] = "list"

    def __init__(self, candidates: Sequence[Candidate], share: float = 1.0):
        super().__init__(share)
        self._left = iter(candidates)

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the next one."""
        return next(self._left, None)


class Raised(TuningPolicy):
    """Proposes requests that may meet the goals with nodes raised, or with more, and be faster than what meets them.

    Those that miss by the least come first. Before everything else was tried, only those come for whose searches there
    is time.
    """

    name: ClassVar[str] = "raised"

    def __init__(self, runner: TrialRunner, share: float, is_last: bool):
        super().__init__(share)
        self._runner, self._is_last = runner, is_last
        self._proposed: set[str] = set()

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the one that misses by the least; None if there is no time left."""
        if self._runner.deadline.is_over:
            return None
        best = min((t.against.median for t in trials if t.is_valid and t.against), default=1.0)
        missing = [t for t in trials if t.status == PREPARED and t.missed and not t.candidate.high]
        faster = [t for t in missing if t.against is not None and t.against.low < min(best, 1.0)]
        faster.sort(key=lambda t: -math.inf if t.snr_db is None else t.snr_db, reverse=True)
        known = {t.candidate.name for t in trials} | self._proposed
        for trial in faster:
            raised = trial.candidate.raised()
            if raised is None or raised.name in known:
                continue
            takes = trial.compile_seconds * (1 if trial.candidate.margin else _SEARCH)
            if self._is_last or takes < self._runner.deadline.remaining:
                self._proposed.add(raised.name)
                return raised
        return None


class Combined(TuningPolicy):
    """Proposes the fastest request, if it has an option, with one more option, as long as that gives a faster one."""

    name: ClassVar[str] = "combined"

    def __init__(self, registry: Registry, candidates: CandidateSet, share: float):
        super().__init__(share)
        self._registry, self._candidates = registry, candidates
        self._left: Iterator[Candidate] = iter(())
        self._around: Candidate | None = None

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the next combination with the request that was the fastest before the first of them."""
        if (combined := next(self._left, None)) is not None:
            return combined
        valid = [t for t in trials if t.is_valid and t.against is not None and t.against.median < 1]
        fastest = min(valid, key=lambda t: t.against.median if t.against else 1.0, default=None)
        if fastest is None or fastest.candidate == self._around:
            return None
        self._around = fastest.candidate
        known = {_options(t.candidate) for t in trials}
        found = combinations_of(self._registry, fastest.candidate, self._candidates.others)
        self._left = iter([one for one in found if _options(one) not in known])
        return next(self._left, None)


def _options(candidate: Candidate) -> tuple[object, ...]:
    """Return a request without the order of its options."""
    choices = map(BackendChoice.parse, candidate.backends)
    options = tuple((choice.name, frozenset(choice.options.items())) for choice in choices)
    return options, candidate.high, candidate.pins, candidate.margin, candidate.threads


class Mixed(TuningPolicy):
    """Proposes plans that mix candidates, and lets what each of them took correct the next prediction.

    Attributes:
        mixing: Predicts the plans.
    """

    name: ClassVar[str] = "mixed"

    def __init__(self, mixing: Mixing, share: float):
        super().__init__(share)
        self.mixing = mixing
        self._plans: Iterator[Candidate] | None = None
        self._latest = ""

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the plan that is predicted to be the fastest."""
        if self._plans is None:
            self._plans = self.mixing.candidates(trials)
        latest = next((t for t in trials if t.candidate.name == self._latest), None)
        if latest is not None:
            self.mixing.learn(latest)
        plan = next(self._plans, None)
        self._latest = plan.name if plan is not None else ""
        return plan
