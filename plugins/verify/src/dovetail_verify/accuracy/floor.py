"""The accuracy floor of a backend: nodes that alone in integers leave less at an output are computed in floats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail.planning import Remark
from dovetail.text import pluralize

from dovetail_verify.compare import verify
from dovetail_verify.functions import layers_of_request
from dovetail_verify.layer_search import RESCALING
from dovetail_verify.runners import exact_runner, source_runner

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    from dovetail_verify.held_out import HeldOut

_MEASURED = 12  # nodes, worst alone first, whose effect on the outputs is measured; each takes a run per batch
_BATCHES = 4  # on which nodes are measured
_NAMED = 4
_CLEAR = 1.0  # dB that other scales must gain
_OPTION, _ASYMMETRIC = "activations", "asymmetric"  # of backend files
_COSTLY, _BETTER_SCALES = "costly-nodes", "better-scales"
_REFINE = "refine"  # the name of the option in a request that chooses refinements


def above_floor(job: CompileJob, held_out: HeldOut, compiled: CompiledModel) -> CompiledModel:
    """Return a result in which no node in integers alone leaves less than its backend's `accuracy: {floor: ...}`.

    If an output of the result has less than the floor, results with other scales are tried first (other activations,
    without refinements); then nodes below the floor are computed in floats, and a remark names them. Only the samples
    that calibrate are looked at, and the arithmetic is that of the plan on the host, so the decision is the same on
    every machine. Pins, `--low` and replayed plans are obeyed, and switch this off.

    Args:
        job: The compilation.
        held_out: Its data.
        compiled: The result of the request as it is.

    Raises:
        DovetailError: The result or the original cannot be run.
    """
    floors = _floors(job)
    used = {node.backend for node in compiled.plan.nodes} & floors.keys()
    request = held_out.request
    if not used or job.request.plan is not None or request.pins or request.low:
        return compiled
    floor = max(floors[name][0] for name in used)
    if (before := _worst(job, held_out, compiled)) >= floor:
        return compiled
    compiled, request, before = _with_better_scales(job, held_out, compiled, before, floors)
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
        compiled.plan.remarks.append(Remark("analysis", "", "accuracy", _COSTLY, why, advice=error.hint))
        return compiled
    costly = [
        layer for layer in layers
        if layer.backend in floors and layer.at_outputs is not None
        and round(layer.at_outputs, 1) < floors[layer.backend][0]
    ]  # fmt: skip
    names = [name for layer in costly for name in (layer.node, *layer.moving)]
    if not names:
        _remark_in_vain(compiled, before, f"no node alone leaves less than {floor:g} dB: the errors of many add up")
        return compiled
    asks = f"in integers alone it leaves less than {floor:g} dB"
    better = held_out.compile(dict.fromkeys(names, ("high", asks)), request)
    after = _worst(job, held_out, better)
    if after <= before:
        _remark_in_vain(compiled, before, f"{pluralize(len(costly), 'node')} in float32 would leave {after:.1f} dB")
        return compiled
    said = ", ".join(f"'{layer.node}' {layer.at_outputs:.1f} dB" for layer in costly[:_NAMED])
    more = ", ..." if len(costly) > _NAMED else ""
    why = (
        f"{pluralize(len(costly), 'node')} stayed in float32, because in integers {said}{more} would be left at the "
        f"worst output: {before:.1f} dB before, {after:.1f} dB with them, on samples that calibrate"
    )
    backend = costly[0].backend
    advice = f"--backend {backend}:floor=none leaves none in floats; --min-snr 30 raises what is needed for a goal"
    better.plan.remarks += [
        *(remark for remark in compiled.plan.remarks if remark.rule == _BETTER_SCALES),
        Remark("analysis", "", "accuracy", _COSTLY, why, advice=advice, source=floors[backend][1]),
    ]
    return better


def _floors(job: CompileJob) -> dict[str, tuple[float, str]]:
    """Return the floor of each backend that has one, in decibels, with file and line."""
    return {backend.name: backend.floor for backend in job.ctx.backends if backend.floor is not None}


def _remark_in_vain(compiled: CompiledModel, before: float, found: str) -> None:
    why = f"{before:.1f} dB on samples that calibrate, and no node stayed in float32 for that: {found}"
    advice = "--min-snr 30 raises what is needed for a goal, and says if that is everything"
    compiled.plan.remarks.append(Remark("analysis", "", "accuracy", _COSTLY, why, advice=advice))


def _with_better_scales(
    job: CompileJob, held_out: HeldOut, compiled: CompiledModel, before: float, floors: Mapping[str, object]
) -> tuple[CompiledModel, Request, float]:
    """Return the most accurate of a result and those with other scales, its request, and the SNR that it leaves."""
    best, asked, least = compiled, held_out.request, before
    others = {
        "channels that are not scaled": _unscaled(asked, compiled),
        "no refinements": _refined(asked, ()) if _REFINE not in asked.options and _changed(compiled) else None,
        f"{_OPTION}={_ASYMMETRIC}": _asymmetric(job, asked, floors),
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


def _asymmetric(job: CompileJob, request: Request, floors: Mapping[str, object]) -> Request | None:
    """Return a request with zero points of activations; None if no backend has them as an option that is open."""
    names = {
        backend.name
        for backend in job.ctx.backends
        if backend.name in floors and _ASYMMETRIC in backend.options.get(_OPTION, ())
    }
    choices = tuple(
        replace(choice, options={**choice.options, _OPTION: _ASYMMETRIC})
        if choice.name in names and choice.observer is None and not {_OPTION, "weights"} & choice.options.keys()
        else choice
        for choice in request.backends
    )
    return None if choices == request.backends else replace(request, backends=choices)


def _worst(job: CompileJob, held_out: HeldOut, compiled: CompiledModel) -> float:
    """Return the SNR of the worst float output on the samples that calibrate, in tenths; infinite without one.

    Tenths, because sums in another order change the last bits on other machines.
    """
    run = exact_runner(compiled, job.ctx)
    original = source_runner(job.original, job.ctx)
    found = verify(job.original, original, run, held_out.request.data, made=compiled.model, whole=True)
    return math.inf if found.worst_snr_db is None else round(found.worst_snr_db, 1)
