"""The policies that come with `tune`: defaults, options, what these give together, raised nodes, and mixtures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from dovetail.passes import BackendChoice

from dovetail_tune.candidates import Candidate, combinations_of
from dovetail_tune.mixing import Mixing
from dovetail_tune.trial import PREPARED, CandidateTrial
from dovetail_tune.tuning_policy import Conclusion, TuningContext, TuningPolicy

_TRYING, _MIXING = 0.6, 0.8  # shares of the budget after which options and mixtures are no longer tried
_SEARCH = 12  # compilations in the time of a search for nodes to raise: measured as 5 to 12


class Defaults(TuningPolicy):
    """Proposes the host with other threads, and backends as they are asked for."""

    name, order, share = "defaults", 10, _MIXING

    def __init__(self, context: TuningContext):
        super().__init__(context)
        self._left = iter(context.candidates.defaults)

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the next one."""
        return next(self._left, None)


class Raised(TuningPolicy):
    """Proposes requests that may meet the goals with nodes raised, or with more, and be faster than what meets them.

    Those that miss by the least come first, if there is time for their searches. That gains more than other options do.
    """

    name, order, share = "raised", 20, _MIXING
    in_time: ClassVar[bool] = True

    def __init__(self, context: TuningContext):
        super().__init__(context)
        self._proposed: set[str] = set()

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the one that misses by the least; None if there is no time left."""
        deadline = self.context.runner.deadline
        if deadline.is_over:
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
            if not self.in_time or takes < deadline.remaining:
                self._proposed.add(raised.name)
                return raised
        return None


class Options(TuningPolicy):
    """Proposes other options of backends, one at a time, and those together that interact by a backend's file."""

    name, order, share = "options", 30, _TRYING

    def __init__(self, context: TuningContext):
        super().__init__(context)
        self._left = iter(context.candidates.others)

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the next one."""
        return next(self._left, None)


class RaisedOptions(Raised):
    """Proposes what `Raised` does, other options included, whether or not there is time for all of their searches."""

    name, order, share = "raised-options", 40, _TRYING
    in_time = False


class Combined(TuningPolicy):
    """Proposes options together that gain alone, as long as that gives a faster request.

    First come all that are faster than the backend's default; then the fastest request, if it has an option, with one
    more option, the fastest ones first.
    """

    name, order, share = "combined", 50, _TRYING

    def __init__(self, context: TuningContext):
        super().__init__(context)
        self._left: Iterator[Candidate] = iter(())
        self._around: Candidate | None = None

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the next combination with the request that was the fastest before the first of them."""
        if (combined := next(self._left, None)) is not None:
            return combined
        times = {t.candidate: t.against.median for t in trials if t.is_valid and t.against is not None}
        fastest = min(times, key=lambda one: times[one], default=None)
        if fastest is None or times[fastest] >= 1 or fastest == self._around:
            return None
        self._around = fastest
        others = sorted(self.context.candidates.others, key=lambda one: times.get(one, math.inf))
        default = BackendChoice.parse(fastest.backends[0]).name
        without = next((time for one, time in times.items() if _is_default(one, default, fastest.threads)), 1.0)
        gaining = [one for one in others if times.get(one, math.inf) < without]
        found = combinations_of(self.context.plugins.registry, fastest, others, gaining)
        known = {_options(t.candidate) for t in trials}
        self._left = iter([one for one in found if _options(one) not in known])
        return next(self._left, None)


def _is_default(candidate: Candidate, name: str, threads: int) -> bool:
    """Check whether a candidate is a backend as it is asked for."""
    return (candidate.backends, candidate.high, candidate.margin, candidate.threads) == ((name,), (), 0.0, threads)


def _options(candidate: Candidate) -> tuple[object, ...]:
    """Return a request without the order of its options."""
    choices = map(BackendChoice.parse, candidate.backends)
    options = tuple((choice.name, frozenset(choice.options.items())) for choice in choices)
    return options, candidate.high, candidate.pins, candidate.margin, candidate.threads


class Mixed(TuningPolicy):
    """Proposes plans that mix candidates, and lets what each of them took correct the next prediction."""

    name, order, share = "mixed", 60, _MIXING

    def __init__(self, context: TuningContext):
        super().__init__(context)
        self._mixing: Mixing | None = None
        self._plans: Iterator[Candidate] = iter(())
        self._latest = ""

    def propose(self, trials: Sequence[CandidateTrial]) -> Candidate | None:
        """Return the plan that is predicted to be the fastest."""
        context = self.context
        if not context.is_mixed:
            return None
        if self._mixing is None:
            self._mixing = Mixing(context.runner, context.model, context.plugins, context.step)
            self.notes = self._mixing.notes
            self._plans = self._mixing.candidates(trials)
        latest = next((t for t in trials if t.candidate.name == self._latest), None)
        if latest is not None:
            self._mixing.learn(latest)
        plan = next(self._plans, None)
        self._latest = plan.name if plan is not None else ""
        return plan

    def doubt(self, name: str, measured: float) -> str:
        """Return that a mixture did not take what was predicted."""
        return "" if self._mixing is None else self._mixing.doubt(name, measured)

    def conclude(self, ratios: Mapping[str, float], winner: float | None) -> Conclusion:
        """Return the front and the certificate by what the last race measured."""
        if self._mixing is None:
            return Conclusion()
        self._mixing.certify(ratios, self.context.runner.deadline.remaining)
        return Conclusion(self._mixing.certificate(winner), self._mixing.front)
