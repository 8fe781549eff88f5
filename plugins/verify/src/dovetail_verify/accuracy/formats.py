"""Accuracy goals over the formats of several backends: integers, the floats of the next backend, then float32."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dovetail.planning import IN_FLOATS, Remark, parse_pin
from dovetail_runtime.engines import engines_of

from dovetail_verify.accuracy.raising import Raised, meet_goals
from dovetail_verify.accuracy.trials import LOW_FLOATS
from dovetail_verify.floats_instead import FLOATS_INSTEAD
from dovetail_verify.held_out import HeldOut
from dovetail_verify.runners import trials_of

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import Asked, CompiledModel, CompileJob, Proceed

    from dovetail_verify.accuracy.goals import Goals
    from dovetail_verify.floats_instead import FloatsInstead


def meet_goals_over_formats(
    job: CompileJob, proceed: Proceed, goals: Goals, floats: FloatsInstead | None = None
) -> Raised:
    """Compile a request so that it meets its goals in the cheapest formats of its backends.

    If a backend with integers is followed by one with 16-bit floats, nodes are first raised to these floats. If that
    does not meet the goals, or leaves nothing in integers, the request is compiled without the backends that have
    integers, and nodes are raised from 16-bit floats to float32. In every other case nodes are raised to float32 at
    once.

    What is slower with integers than without is compiled without them: before a search, because raised nodes make
    integers no faster, and after it.

    Args:
        job: The compilation.
        proceed: Compiles a request with some nodes raised.
        goals: Goals for every float output.
        floats: Decides whether floats are faster; None to keep integers.

    Raises:
        DovetailError: The request cannot be compiled or run, or has no output that the goals apply to.
    """
    held_out = HeldOut(job, proceed, searched=True)

    def met_by(request: Request) -> CompiledModel | None:
        asked = replace(request, data=held_out.request.data)
        found = _met(job, held_out, partial(held_out.compile, request=asked), goals, asked)
        return found.compiled if found.failure is None else None

    def instead(compiled: CompiledModel) -> Raised | None:
        faster = floats.of(compiled, met_by) if floats is not None else None
        return None if faster is None else Raised(faster)

    found = _with_integers(job, held_out, goals, instead)
    return found if found.failure is not None else instead(found.compiled) or found


def _with_integers(
    job: CompileJob, held_out: HeldOut, goals: Goals, instead: Callable[[CompiledModel], Raised | None]
) -> Raised:
    """Meet the goals in all formats of the request."""
    integers = _followed_by_floats(job)
    if not integers:
        return _met(job, held_out, held_out.compile, goals, held_out.request, instead=instead)
    found = _met(job, held_out, held_out.compile, goals, held_out.request, IN_FLOATS, instead)
    if found.failure is None and (_has_integers(found.compiled, integers) or _replaced(found.compiled)):
        return found
    kept = tuple(choice for choice in job.request.backends if choice.name not in integers)
    without = replace(held_out.request, backends=kept)
    found = _met(job, held_out, partial(held_out.compile, request=without), goals, without)
    why = f"{', '.join(integers)} left out: {goals} needs everything in the floats of the following backends"
    advice = f"lower the goal, or name {' or '.join(integers)} alone"
    found.compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "goal", why, advice=advice))
    return found


def _met(
    job: CompileJob,
    held_out: HeldOut,
    compile_: Callable[[Asked], CompiledModel],
    goals: Goals,
    request: Request,
    level: str = "high",
    instead: Callable[[CompiledModel], Raised | None] | None = None,
) -> Raised:
    trials = trials_of(job.original, compile_, str(goals), request, job.ctx, job.progress, level, held_out.search)
    return meet_goals(trials, request, goals, engines_of([job.ctx.host], job.ctx.registry), held_out.split, instead)


def _replaced(compiled: CompiledModel) -> bool:
    return any(remark.rule == FLOATS_INSTEAD for remark in compiled.plan.remarks)


def _has_integers(compiled: CompiledModel, backends: Collection[str]) -> bool:
    nodes = (node for node in compiled.plan.nodes if node.backend in backends)
    formats = (format_ for node in nodes for format_ in (node.precision, *node.ports.values()))
    return any(format_ is not None and format_.quantized for format_ in formats)


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
