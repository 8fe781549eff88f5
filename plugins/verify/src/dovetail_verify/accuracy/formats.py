"""Accuracy goals over the formats of several backends: integers, the floats of the next backend, then float32."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import HOST, IN_FLOATS, Remark, parse_pin
from dovetail.plugin import Outcome, Proposal, Stepwise, Trial
from dovetail_commands.request import command_text
from dovetail_runtime.data.data_split import Use
from dovetail_runtime.engines import engines_of

from dovetail_verify.accuracy.raising import meet_goals
from dovetail_verify.accuracy.trials import LOW_FLOATS, AccuracyTrials, integer_nodes
from dovetail_verify.held_out import divided
from dovetail_verify.measures import Compared, Judged

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompileJob, Steps

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.accuracy.raising import Raised

_EVERY_NODE = "*"


class MeetGoals(Stepwise):
    """Compiles a request so that it meets its goals in the cheapest formats of its backends.

    If a backend with integers is followed by one with 16-bit floats, nodes are first raised to these floats. If that
    does not meet the goals, or leaves nothing in integers, the request is compiled without the backends that have
    integers, and nodes are raised from 16-bit floats to float32. In every other case nodes are raised to float32 at
    once.

    Args:
        job: The compilation.
        goals: Goals for every float output.
    """

    phase, name = "raise", "goals"

    def __init__(self, job: CompileJob, goals: Goals):
        super().__init__()
        self._job, self._goals = job, goals

    def steps(self) -> Steps[Outcome]:
        """Search for a result that meets the goals.

        Raises:
            DovetailError: The request cannot be compiled or run, or has no output that the goals apply to.
        """
        job, goals, request = self._job, self._goals, self._job.request
        measure = Compared.on(None, job.original, job.ctx, job.progress)
        integers, found = _followed_by_floats(job), None
        if integers:
            found = yield from self._met(measure, request, IN_FLOATS)
            if not (found.planned and integer_nodes(found.compiled.plan)):
                kept = tuple(choice for choice in request.backends if choice.name not in integers)
                found = yield from self._met(measure, replace(request, backends=kept))
                left_out = ", ".join(integers)
                why = f"{left_out} left out: {goals} needs everything in the floats of the following backends"
                advice = f"{goals.way_out}, or name {' or '.join(integers)} alone"
                found.compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "goal", why, advice=advice))
        else:
            found = yield from self._met(measure, request)
        failure = yield from self._with_advice(measure, found)
        return Outcome(trial=Trial(Proposal(str(goals)), found.compiled), failure=failure)

    def _met(self, measure: Compared, request: Request, level: str = "high") -> Steps[Raised]:
        job, goals = self._job, self._goals
        trials = AccuracyTrials(measure, level, str(goals), request)
        judging = None if job.ctx.try_engines is False else Judged(job)
        engines = engines_of([job.ctx.host], job.ctx.registry)
        return (yield from meet_goals(trials, request, goals, engines, divided(job).split, judging))

    def _with_advice(self, measure: Compared, found: Raised) -> Steps[DovetailError | None]:
        """Add to the reason of a miss what each backend alone reaches, and the command that meets the goal."""
        job, reached = self._job, list[str]()
        if found.failure is None or found.planned or job.request.plan is not None:
            return found.failure
        judging = replace(measure, data=divided(job).split.part(Use.JUDGMENT))
        for choice in job.request.backends if len(job.request.backends) > 1 else ():
            alone = replace(
                job.request, backends=(choice,), strategy=None, pins=(), pin_origins={}, low=(), high=(_EVERY_NODE,)
            )
            try:
                trial = yield Proposal(f"what {choice.name} alone reaches", request=alone, measure=judging)
            except DovetailError as error:
                reached.append(f"{choice.name} alone does not run: {error.message}")
                continue
            worst = trial.figure.worst
            reached.append(f"{choice.name} alone {'is' if worst in ('exact', 'broken') else 'has'} {worst}")
            if not self._goals.missed(trial.figure):
                command = command_text("compile", job.original.path, alone, job.ctx.registry)
                reached.append(f"`{command}` meets the goal")
                break
        else:
            reached.append(f"`--backend {HOST}` computes the original's own types, and meets every goal")
        return DovetailError(found.failure.message, "; ".join(filter(None, (found.failure.hint, *reached))))


def _followed_by_floats(job: CompileJob) -> Collection[str]:
    """Return the backends with integers if one with 16-bit floats follows all of them; empty if not.

    A replayed plan, and pins on these backends, decide themselves.
    """
    request = job.request
    backends = job.ctx.backends
    integers = [backend.name for backend in backends if backend.has_integers]
    pinned = {parse_pin(text)[1] for text in request.pins}
    if request.plan is not None or not integers or pinned & set(integers) or backends[-1].low not in LOW_FLOATS:
        return ()
    return integers
