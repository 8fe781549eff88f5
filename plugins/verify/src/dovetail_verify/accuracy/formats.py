"""Accuracy goals over the formats of several backends: integers, the floats of the next backend, then float32."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import HOST, IN_FLOATS, Remark, parse_pin
from dovetail_commands.request import command_text
from dovetail_runtime.engines import engines_of

from dovetail_verify.accuracy.goals import worst_of
from dovetail_verify.accuracy.raising import Raised, meet_goals
from dovetail_verify.accuracy.trials import LOW_FLOATS, integer_nodes
from dovetail_verify.accuracy.trials_of_request import trials_of
from dovetail_verify.compare import verify
from dovetail_verify.runners import exact_runner, source_runner

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompileJob

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.held_out import HeldOut

_EVERY_NODE = "*"


def meet_goals_over_formats(job: CompileJob, held_out: HeldOut, goals: Goals) -> Raised:
    """Compile a request so that it meets its goals in the cheapest formats of its backends.

    If a backend with integers is followed by one with 16-bit floats, nodes are first raised to these floats. If that
    does not meet the goals, or leaves nothing in integers, the request is compiled without the backends that have
    integers, and nodes are raised from 16-bit floats to float32. In every other case nodes are raised to float32 at
    once.

    Args:
        job: The compilation.
        held_out: The parts of its data.
        goals: Goals for every float output.

    Raises:
        DovetailError: The request cannot be compiled or run, or has no output that the goals apply to.
    """
    request, integers = held_out.request, _followed_by_floats(job)
    if not integers:
        return _with_advice(job, held_out, goals, _met(job, held_out, request, goals))
    found = _met(job, held_out, request, goals, IN_FLOATS)
    if found.planned and integer_nodes(found.compiled.plan):
        return found
    kept = tuple(choice for choice in request.backends if choice.name not in integers)
    found = _met(job, held_out, replace(request, backends=kept), goals)
    why = f"{', '.join(integers)} left out: {goals} needs everything in the floats of the following backends"
    advice = f"{goals.way_out}, or name {' or '.join(integers)} alone"
    found.compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "goal", why, advice=advice))
    return _with_advice(job, held_out, goals, found)


def _with_advice(job: CompileJob, held_out: HeldOut, goals: Goals, found: Raised) -> Raised:
    """Add to the reason of a miss what each backend alone reaches, and the command that meets the goal."""
    if found.failure is None or found.planned or job.request.plan is not None:
        return found
    reached = []
    for choice in job.request.backends if len(job.request.backends) > 1 else ():
        alone = replace(
            held_out.request, backends=(choice,), strategy=None, pins=(), pin_origins={}, low=(), high=(_EVERY_NODE,)
        )
        try:
            compiled = held_out.compile(request=alone)
            judgment = held_out.judgment
            run = exact_runner(compiled, job.ctx)
            best = verify(job.original, source_runner(job.original, job.ctx), run, judgment, made=compiled.model)
        except DovetailError as error:
            reached.append(f"{choice.name} alone does not run: {error.message}")
            continue
        worst = worst_of(best)
        reached.append(f"{choice.name} alone {'is' if worst in ('exact', 'broken') else 'has'} {worst}")
        if not goals.missed(best):
            command = command_text("compile", job.original.path, alone, job.ctx.registry)
            reached.append(f"`{command}` meets the goal")
            break
    else:
        reached.append(f"`--backend {HOST}` computes the original's own types, and meets every goal")
    hint = "; ".join(filter(None, (found.failure.hint, *reached)))
    return replace(found, failure=DovetailError(found.failure.message, hint))


def _met(job: CompileJob, held_out: HeldOut, request: Request, goals: Goals, level: str = "high") -> Raised:
    compile_ = partial(held_out.compile, request=request)
    trials = trials_of(job.original, compile_, str(goals), request, job.ctx, job.progress, level, held_out.search)
    measure = None if job.ctx.try_engines is False else held_out.judged
    return meet_goals(trials, request, goals, engines_of([job.ctx.host], job.ctx.registry), held_out.split, measure)


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
