"""Accuracy goals over the formats of several backends: integers, the floats of the next backend, then float32."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dovetail.planning import IN_FLOATS, Remark, parse_pin
from dovetail_runtime.engines import engines_of

from dovetail_verify.accuracy.raising import EXHAUSTIVE, Limits, Raised, meet_goals
from dovetail_verify.accuracy.trials import LOW_FLOATS, integer_nodes
from dovetail_verify.accuracy.trials_of_request import trials_of
from dovetail_verify.floats_instead import FLOATS_INSTEAD

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.floats_instead import FloatsInstead
    from dovetail_verify.held_out import HeldOut


def meet_goals_over_formats(
    job: CompileJob,
    held_out: HeldOut,
    goals: Goals,
    floats: FloatsInstead | None = None,
    request: Request | None = None,
    limits: Limits = EXHAUSTIVE,
) -> Raised:
    """Compile a request so that it meets its goals in the cheapest formats of its backends.

    If a backend with integers is followed by one with 16-bit floats, nodes are first raised to these floats. If that
    does not meet the goals, or leaves nothing in integers, the request is compiled without the backends that have
    integers, and nodes are raised from 16-bit floats to float32. In every other case nodes are raised to float32 at
    once.

    What is slower with integers than without is compiled without them, and low floats that are slower than float32 in
    float32: before a search, because raised nodes make neither faster, and after it.

    Args:
        job: The compilation.
        held_out: The parts of its data.
        goals: Goals for every float output.
        floats: Decides whether floats, or float32, are faster; None to keep integers and low floats.
        request: What is compiled instead of the job's request, such as one with other scales.
        limits: How long each search may take.

    Raises:
        DovetailError: The request cannot be compiled or run, or has no output that the goals apply to.
    """

    def met_by(request: Request) -> CompiledModel | None:
        asked = replace(request, data=held_out.request.data)
        found = _met(job, held_out, asked, goals, limits)
        return found.compiled if found.failure is None else None

    def instead(compiled: CompiledModel, searched: bool = True) -> Raised | None:
        faster = floats.of(compiled, met_by, searched) if floats is not None else None
        return None if faster is None else Raised(faster)

    asked = replace(request, data=held_out.request.data) if request is not None else held_out.request
    found = _with_integers(job, held_out, asked, goals, instead, limits)
    if found.failure is not None:
        return found
    return instead(found.compiled, bool(found.compiled.plan.summary["accuracy"]["raised"])) or found


def _with_integers(
    job: CompileJob,
    held_out: HeldOut,
    request: Request,
    goals: Goals,
    instead: Callable[[CompiledModel], Raised | None],
    limits: Limits,
) -> Raised:
    """Meet the goals in all formats of the request."""
    integers = _followed_by_floats(job)
    if not integers:
        return _met(job, held_out, request, goals, limits, instead=instead)
    found = _met(job, held_out, request, goals, limits, IN_FLOATS, instead)
    if found.failure is None and (integer_nodes(found.compiled.plan) or _replaced(found.compiled)):
        return found
    kept = tuple(choice for choice in request.backends if choice.name not in integers)
    found = _met(job, held_out, replace(request, backends=kept), goals, limits, instead=instead)
    why = f"{', '.join(integers)} left out: {goals} needs everything in the floats of the following backends"
    advice = f"{goals.way_out}, or name {' or '.join(integers)} alone"
    found.compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "goal", why, advice=advice))
    return found


def _met(
    job: CompileJob,
    held_out: HeldOut,
    request: Request,
    goals: Goals,
    limits: Limits,
    level: str = "high",
    instead: Callable[[CompiledModel], Raised | None] | None = None,
) -> Raised:
    compile_ = partial(held_out.compile, request=request)
    trials = trials_of(job.original, compile_, str(goals), request, job.ctx, job.progress, level, held_out.search)
    engines = engines_of([job.ctx.host], job.ctx.registry)
    return meet_goals(trials, request, goals, engines, held_out.split, instead, limits)


def _replaced(compiled: CompiledModel) -> bool:
    return any(remark.rule == FLOATS_INSTEAD for remark in compiled.plan.remarks)


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
