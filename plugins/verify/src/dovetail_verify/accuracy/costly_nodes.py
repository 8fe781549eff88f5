"""Nodes that are too costly in integers: what the data says about a first result, and the result without them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail.planning import Remark
from dovetail.text import pluralize

from dovetail_verify.functions import layers_of_request
from dovetail_verify.runners import runner, source_runner

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    from dovetail_verify.held_out import HeldOut

_POOR = 25.0  # dB at an output that a single node in integers must leave
_MEASURED = 12  # nodes, worst alone first, whose effect on the outputs is measured; each takes a run per batch
_BATCHES = 4  # that nodes are measured on
_NAMED = 4


def without_costly_nodes(job: CompileJob, held_out: HeldOut, compiled: CompiledModel) -> CompiledModel:
    """Return a result in integers without those nodes that alone leave less than 25 dB at an output.

    They are computed in float32, and a remark names them. What judges the result is not looked at. A request that says
    itself where nodes are computed is obeyed, and so is one for all integers (`all_integers`).

    Args:
        job: The compilation.
        held_out: Its data.
        compiled: The result of the request as it is.

    Raises:
        DovetailError: The result or the original cannot be run.
    """
    request, device = job.request, job.ctx.host.device
    integers = {backend.name for backend in job.ctx.backends if backend.has_integers and backend.device == device}
    used = any(node.backend in integers for node in compiled.plan.nodes)
    if not used or request.plan is not None or request.pins or request.low or job.keywords.get("all_integers"):
        return compiled
    before = _worst(job, held_out, compiled)
    if before >= _POOR:
        return compiled
    ctx = Context(request, plugins=job.ctx.plugins)
    data = held_out.request.data
    try:
        layers = layers_of_request(
            job.original, compiled, data, ctx, job.passes, by="outputs", outputs=_MEASURED, most=_BATCHES,
            progress=job.progress,
        ).layers  # fmt: skip
    except DovetailError as error:  # some results cannot be looked at node by node
        why = f"{before:.1f} dB on samples that calibrate, and no node is named that costs them: {error.message}"
        compiled.plan.remarks.append(Remark("analysis", "", "accuracy", "costly-nodes", why, advice=error.hint))
        return compiled
    measured = [layer for layer in layers if layer.at_outputs is not None and layer.backend in integers]
    costly = [layer for layer in measured if layer.at_outputs is not None and layer.at_outputs < _POOR]
    names = [name for layer in costly for name in (layer.node, *layer.moving)]
    if not names:
        return compiled
    asks = f"in integers alone it leaves less than {_POOR:g} dB"
    better = held_out.compile(dict.fromkeys(names, ("high", asks)))
    after = _worst(job, held_out, better)
    if after <= before:
        return compiled
    said = ", ".join(f"'{layer.node}' {layer.at_outputs:.1f} dB" for layer in costly[:_NAMED])
    more = ", ..." if len(costly) > _NAMED else ""
    why = (
        f"{pluralize(len(costly), 'node')} stayed in float32, because in integers {said}{more} would be left at the "
        f"worst output: {before:.1f} dB before, {after:.1f} dB with them, on samples that calibrate"
    )
    advice = "--all-integers leaves none in floats; --min-snr 30 raises what is needed for a goal"
    better.plan.remarks.append(Remark("analysis", "", "accuracy", "costly-nodes", why, advice=advice))
    return better


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
