"""Nodes that are too costly in integers: what the data says about a first result, and the result without them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail.planning import Remark
from dovetail.text import pluralize

from dovetail_verify.functions import layers_of_request
from dovetail_verify.layer_search import RESCALING
from dovetail_verify.runners import runner, source_runner

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    from dovetail_verify.held_out import HeldOut

_POOR = 25.0  # dB at an output that a single node in integers must leave
_MEASURED = 12  # nodes, worst alone first, whose effect on the outputs is measured; each takes a run per batch
_BATCHES = 4  # that nodes are measured on
_NAMED = 4
_CLEAR = 1.0  # dB that other scales must gain
_OPTION, _ASYMMETRIC = "activations", "asymmetric"  # of backend files
_BETTER_SCALES = "better-scales"
_REFINE = "refine"  # the name of the option in a request that chooses refinements


def chooses_integers(job: CompileJob, compiled: CompiledModel) -> bool:
    """Check whether a result has integers on this machine's own device that no option of its request insists on."""
    request, integers = job.request, _integers_here(job)
    asked = request.plan is not None or request.pins or request.low or job.keywords.get("all_integers")
    return not asked and any(node.backend in integers for node in compiled.plan.nodes)


class Considered(NamedTuple):
    """A result, the request with the scales that it has, and its SNR on the samples that calibrate."""

    compiled: CompiledModel
    request: Request
    snr_db: float = math.inf


def without_costly_nodes(job: CompileJob, held_out: HeldOut, compiled: CompiledModel) -> Considered:
    """Return a result in integers without those nodes that alone leave less than 25 dB at an output.

    They are computed in float32, and a remark names them. Where the result leaves less than 25 dB, it is first compared
    with one of other activations (`activations=asymmetric` where the backend's file has that), and with those without
    refinements; a clearly better one is taken. What judges the result is not looked at. A request that says
    itself where nodes are computed is obeyed, and so is one for all integers (`all_integers`).

    Args:
        job: The compilation.
        held_out: Its data.
        compiled: The result of the request as it is.

    Raises:
        DovetailError: The result or the original cannot be run.
    """
    request = held_out.request
    if not chooses_integers(job, compiled) or (before := _worst(job, held_out, compiled)) >= _POOR:
        return Considered(compiled, request)
    compiled, request, before = _with_better_scales(job, held_out, compiled, before)
    # Layers of a result whose channels were scaled cannot be compared.
    looked_at = compiled if (unscaled := _unscaled(request, compiled)) is None else held_out.compile(request=unscaled)
    ctx = Context(request, plugins=job.ctx.plugins)
    try:
        layers = layers_of_request(
            job.original, looked_at, request.data, ctx, job.passes, by="outputs", outputs=_MEASURED, most=_BATCHES,
            progress=job.progress,
        ).layers  # fmt: skip
    except DovetailError as error:  # some results cannot be looked at node by node
        why = f"{before:.1f} dB on samples that calibrate, and no node is named that costs them: {error.message}"
        compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "costly-nodes", why, advice=error.hint))
        return Considered(compiled, request, before)
    integers = _integers_here(job)
    measured = [layer for layer in layers if layer.at_outputs is not None and layer.backend in integers]
    costly = [layer for layer in measured if layer.at_outputs is not None and layer.at_outputs < _POOR]
    names = [name for layer in costly for name in (layer.node, *layer.moving)]
    if not names:
        _remark_in_vain(compiled, before, f"no node alone leaves less than {_POOR:g} dB: the errors of many add up")
        return Considered(compiled, request, before)
    asks = f"in integers alone it leaves less than {_POOR:g} dB"
    better = held_out.compile(dict.fromkeys(names, ("high", asks)), request)
    after = _worst(job, held_out, better)
    if after <= before:
        _remark_in_vain(compiled, before, f"{pluralize(len(costly), 'node')} in float32 would leave {after:.1f} dB")
        return Considered(compiled, request, before)
    said = ", ".join(f"'{layer.node}' {layer.at_outputs:.1f} dB" for layer in costly[:_NAMED])
    more = ", ..." if len(costly) > _NAMED else ""
    why = (
        f"{pluralize(len(costly), 'node')} stayed in float32, because in integers {said}{more} would be left at the "
        f"worst output: {before:.1f} dB before, {after:.1f} dB with them, on samples that calibrate"
    )
    advice = "--all-integers leaves none in floats; --min-snr 30 raises what is needed for a goal"
    better.plan.remarks += [
        *(remark for remark in compiled.plan.remarks if remark.rule == _BETTER_SCALES),
        Remark("analysis", "", "accuracy", "costly-nodes", why, advice=advice),
    ]
    return Considered(better, request, after)


def _remark_in_vain(compiled: CompiledModel, before: float, found: str) -> None:
    why = f"{before:.1f} dB on samples that calibrate, and no node stayed in float32 for that: {found}"
    advice = "--min-snr 30 raises what is needed for a goal, and says if that is everything"
    compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "costly-nodes", why, advice=advice))


def _integers_here(job: CompileJob) -> set[str]:
    """Return the backends with integers whose results run on this machine's own device."""
    device = job.ctx.host.device
    return {backend.name for backend in job.ctx.backends if backend.has_integers and backend.device == device}


def _with_better_scales(
    job: CompileJob, held_out: HeldOut, compiled: CompiledModel, before: float
) -> tuple[CompiledModel, Request, float]:
    """Return the most accurate of a result and those with other scales, its request, and the SNR that it leaves."""
    best, asked, least = compiled, held_out.request, before
    others = {
        "channels that are not scaled": _unscaled(asked, compiled),
        "no refinements": _refined(asked, ()) if _REFINE not in asked.options and _changed(compiled) else None,
        f"{_OPTION}={_ASYMMETRIC}": _asymmetric(job, asked),
    }
    for name, request in others.items():
        if request is None:
            continue
        other = held_out.compile(request=request)
        after = _worst(job, held_out, other)
        if after < least + _CLEAR:
            continue
        why = f"{name}: {after:.1f} dB at the worst output, {least:.1f} dB without, on samples that calibrate"
        earlier = [remark for remark in best.plan.remarks if remark.rule == _BETTER_SCALES]
        other.plan.remarks += [*earlier, Remark("analysis", "", "accuracy", _BETTER_SCALES, why)]
        best, asked, least = other, request, after
    return best, asked, least


def _unscaled(request: Request, compiled: CompiledModel) -> Request | None:
    """Return a request without the refinements that scale channels; None if they changed nothing in its result."""
    changed = _changed(compiled)
    if not any(changed.get(step) for step in RESCALING):
        return None
    return _refined(request, [step for step in changed if step not in RESCALING])


def _changed(compiled: CompiledModel) -> Mapping[str, int]:
    """Return how much each refinement of a result changed."""
    found: Mapping[str, int] = compiled.plan.summary.get("refined", {}).get("changed", {})
    return found


def _refined(request: Request, steps: Sequence[str]) -> Request:
    return replace(request, options={**request.options, _REFINE: {"steps": list(steps)}})


def _asymmetric(job: CompileJob, request: Request) -> Request | None:
    """Return a request with zero points of activations; None if no backend has them as an option that is open."""
    names = {
        backend.name for backend in job.ctx.backends
        if backend.name in _integers_here(job) and _ASYMMETRIC in backend.options.get(_OPTION, ())
    }  # fmt: skip
    choices = tuple(
        replace(choice, options={**choice.options, _OPTION: _ASYMMETRIC})
        if choice.name in names and choice.observer is None and not {_OPTION, "weights"} & choice.options.keys()
        else choice
        for choice in request.backends
    )
    return None if choices == request.backends else replace(request, backends=choices)


def as_accurate(
    job: CompileJob, held_out: HeldOut, compiled: CompiledModel
) -> Callable[[Request], CompiledModel | None]:
    """Return a function that compiles a request if the result is as accurate as another one, or leaves 25 dB.

    Args:
        job: The compilation.
        held_out: Its data; the part that calibrates is looked at.
        compiled: The result to compare with.
    """

    def meets(request: Request) -> CompiledModel | None:
        floats = held_out.compile(request=replace(request, data=held_out.request.data))
        enough = min(_worst(job, held_out, compiled), _POOR)
        return floats if _worst(job, held_out, floats) >= enough else None

    return meets


def _worst(job: CompileJob, held_out: HeldOut, compiled: CompiledModel) -> float:
    """Return the SNR of the worst float output on the samples that calibrate; infinite without one."""
    from dovetail_verify.compare import verify

    run = runner(compiled)
    found = verify(job.original, source_runner(job.original, job.ctx), run, held_out.request.data, made=compiled.model)
    return math.inf if found.worst_snr_db is None else found.worst_snr_db
