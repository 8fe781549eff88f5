"""The one search of a compilation: it tries what policies propose, phase by phase, and keeps what that gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dovetail.errors import DovetailError, GoalError, ResultError
from dovetail.planning.remark import Remark
from dovetail.plugin.emitter import searching
from dovetail.plugin.loading.output import own_output
from dovetail.plugin.options import blaming, returned
from dovetail.plugin.search import Outcome, Policy, Proposal, Trial, proposals

if TYPE_CHECKING:
    from dovetail.compiler.option_phases import OptionPhases
    from dovetail.planning.request import Request
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.options import CompileJob, InstalledOption
    from dovetail.plugin.search import Asked, Phase

    Compile = Callable[[Asked, Request], CompiledModel]

T = TypeVar("T")

SUMMARY = "trials"
"""Key in the summary of a plan: what was tried for it, by which policy, why, and the figures."""


@dataclass(frozen=True)
class FoundPolicy:
    """A policy with the option that returned it, which is blamed for its errors; None for one of a command."""

    policy: Policy
    option: InstalledOption | None = None

    def blamed(self) -> AbstractContextManager[None]:
        """Name the option in errors raised by the block."""
        return nullcontext() if self.option is None else blaming(self.option)

    def returned(self, value: object, kind: type[T], what: str) -> T:
        """Check the type of what the policy returned, and return it.

        Raises:
            DovetailError: It is something else.
        """
        return cast("T", value) if self.option is None else returned(self.option, value, kind, what)


class Search:
    """Searches for the result of a job, as the policies of its options propose.

    The latest result is kept until another one is compiled, since two results of a large model need twice the memory.

    Args:
        options: The options.
        compile: Compiles overrides of nodes and a request.

    Attributes:
        problems: What is wrong with the result, which is complete.
    """

    def __init__(self, options: OptionPhases, compile: Compile):
        self._options, self._compile = options, compile
        self._remarks: list[Remark] = []
        self._tried: list[dict[str, str]] = []
        self._latest: tuple[object, CompiledModel] | None = None
        self.problems: list[ResultError] = []

    def compares(self, job: CompileJob) -> bool:
        """Check whether a policy compares results on data to choose one of them."""
        found = chain(self._policies(job, "observe"), self._policies(job, "raise"))
        return any(one.policy.compares for one in found)

    def run(self, job: CompileJob) -> tuple[CompileJob, CompiledModel]:
        """Return the result that was found, and the job with the request that it is of.

        Raises:
            DovetailError: The request cannot be compiled, or a policy fails.
        """
        for option in self._searching():
            for one in self._policies_of(option, job, "observe"):
                outcome = self.followed(one, job.request)
                self._remarks += outcome.remarks
                job = job if outcome.request is None else replace(job, request=outcome.request)
        compiled = self._raised(job)
        for one in self._policies(job, "fit"):
            trials = [Trial(Proposal("the request as it is"), compiled)]
            for proposal in self._proposals(one, trials):
                self.problems.clear()
                job = job if proposal.request is None else replace(job, request=proposal.request)
                self._let_go(trials)
                compiled = self._raised(job)
                trials.append(Trial(proposal, compiled))
        compiled.plan.remarks += self._remarks
        if self._tried:
            compiled.plan.summary[SUMMARY] = list(self._tried)
        return job, compiled

    def _raised(self, job: CompileJob) -> CompiledModel:
        """Return the result that the first policy chooses, or the best one that it found, or that of the request."""
        for one in self._policies(job, "raise"):
            outcome = self.followed(one, job.request)
            if outcome.trial is None:
                continue
            compiled = self._result(outcome.trial, job.request)
            compiled.plan.remarks += outcome.remarks
            if outcome.failure is not None:
                self.problems.append(GoalError(compiled, outcome.failure))
            return compiled
        return self._compiled(Proposal("the request as it is"), job.request)

    def followed(self, one: FoundPolicy, request: Request) -> Outcome:
        """Try what a policy proposes, and return what it found.

        Args:
            one: The policy.
            request: What is compiled where a proposal names no request.

        Raises:
            DovetailError: The request cannot be compiled, or the policy fails.
        """
        trials: list[Trial] = []
        for proposal in self._proposals(one, trials):
            self._let_go(trials)
            trials.append(trial := self._trial(one, proposal, request))
            if trial.error is not None and not one.policy.bears_errors:
                raise trial.error
            if proposal.measure is not None:
                with one.blamed():
                    figure = proposal.measure.text(trial.figure) if trial.error is None else trial.error.message
                self._tried.append({"policy": one.policy.name, "why": proposal.why, "figure": figure})
        with one.blamed():
            return one.returned(one.policy.outcome(trials), Outcome, "outcome of a search")

    def _proposals(self, one: FoundPolicy, trials: Sequence[Trial]) -> Iterator[Proposal]:
        """Yield what a policy proposes, until it has nothing new."""

        def ask() -> Proposal | None:
            with one.blamed():
                proposal = one.policy.propose(trials)
            return None if proposal is None else one.returned(proposal, Proposal, "proposal")

        def repeated(proposal: Proposal) -> None:
            why = f"{one.policy.name} proposed what it had proposed before ({proposal.why}), and was ended"
            advice = f"report it to {one.option.owner}" if one.option is not None else ""
            self._remarks.append(Remark("analysis", "", "search", "repeated-proposal", why, advice=advice))

        return proposals(ask, repeated)

    def _trial(self, one: FoundPolicy, proposal: Proposal, request: Request) -> Trial:
        """Compile and measure a proposal of a policy."""
        trial, measure = Trial(proposal), proposal.measure
        try:
            if measure is None or measure.compiles:
                trial = replace(trial, compiled=self._compiled(proposal, request))
            if measure is None:
                return trial
            with one.blamed():
                return replace(trial, figure=measure.of(trial))
        except DovetailError as error:
            return replace(trial, error=error)

    def _result(self, trial: Trial, request: Request) -> CompiledModel:
        """Return the result of a trial, and compile it once more if it was let go, or compiled as a trial alone."""
        measure = trial.proposal.measure
        if trial.compiled is not None and (measure is None or not measure.is_search):
            return trial.compiled
        return self._compiled(replace(trial.proposal, measure=None), request)

    def _compiled(self, proposal: Proposal, request: Request) -> CompiledModel:
        asked = replace(proposal, request=proposal.request or request)
        key = asked.compiled_from
        if self._latest is None or self._latest[0] != key:
            self._latest = None
            is_trial = proposal.measure is not None and proposal.measure.is_search
            with own_output(), searching(is_trial):
                self._latest = key, self._compile(asked.asked, cast("Request", asked.request))
        return self._latest[1]

    @staticmethod
    def _let_go(trials: list[Trial]) -> None:
        if trials:
            trials[-1] = replace(trials[-1], compiled=None)

    def _policies(self, job: CompileJob, phase: Phase) -> Iterator[FoundPolicy]:
        """Yield the policies of a phase, those of options whose keywords are given first."""
        for option in self._searching():
            yield from self._policies_of(option, job, phase)

    def _searching(self) -> list[InstalledOption]:
        return sorted(self._options.acting("policies"), key=lambda one: not self._options.given(one))

    @staticmethod
    def _policies_of(option: InstalledOption, job: CompileJob, phase: Phase) -> list[FoundPolicy]:
        with blaming(option):
            policies: Any = list(option.option.policies(job, phase))
        return [FoundPolicy(returned(option, policy, Policy, "policy"), option) for policy in policies]
