"""Compiling: decide, carry out, and decide again where an engine refuses what was decided for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.counting import counted
from dovetail.errors import DovetailError
from dovetail.gc_pause import gc_paused
from dovetail.planning.placement import HOST
from dovetail.planning.refusals import Refusals, nodes_to_refuse

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Instrumentation, Pass
    from dovetail.runtime.guard import GuardedEngine

__all__ = ["CARRY_OUT", "DECIDE", "compile_model", "preferred_engines", "run_stages", "too_large"]

DECIDE = ("normalise", "analyse", "place", "type")
CARRY_OUT = ("calibrate", "quantise", "join", "weights", "outline", "lower")

_ROUNDS = 8
_LARGEST_TRIED = 1 << 30  # bytes of weights; engines need as much again
_MOST_TRIED = 20_000  # nodes; the time that engines take to prepare need not be linear


def compile_model(
    original: Model,
    ctx: Context,
    engines: Mapping[str, Sequence[GuardedEngine]],
    *,
    passes: Sequence[Pass] = (),
    instrumentation: Instrumentation,
    try_engines: bool | None = None,
) -> CompiledModel:
    """Give every node its backend and precision, with the conversions that needs.

    The regions are then loaded on the engines that the backends are made for, where these run on this machine. What
    an engine refuses is placed elsewhere, and that is repeated until nothing is refused.

    Args:
        original: The model, which stays as it is.
        ctx: The request; it gets the remarks of the last round.
        engines: The engines of each backend.
        passes: Passes of the caller, in addition to those of plugins.
        instrumentation: What to print and verify on the way.
        try_engines: Load the regions (True), do not (False), or load them unless the model is large (None).

    Raises:
        DovetailError: The model or the request is at fault.
    """
    from dovetail.compiled import CompiledModel
    from dovetail.planning.plan import Plan

    preferred = preferred_engines(engines, try_engines)
    for turn in range(_ROUNDS):
        work = original.clone()
        run_stages(work, ctx, DECIDE, instrumentation, passes)
        with gc_paused():
            decided = Plan.extract(work, ctx, original)
        run_stages(work, ctx, CARRY_OUT, instrumentation, passes)
        decided.remarks = list(ctx.remarks)
        compiled = CompiledModel(work, decided, engines, files=dict(ctx.files))
        if not preferred.keys() & decided.summary["coverage"].keys():
            break
        if try_engines is None and (why := too_large(work)):
            compiled.untried = why
            break
        # Engines name one node at a time; where there is no end to it, what is left of the region goes as a whole.
        refused = _refused(compiled, preferred, instrumentation, whole=turn >= _ROUNDS - 2)
        if not refused or turn == _ROUNDS - 1:
            break
        ctx.restart(_joined(ctx.refusals, refused))
    return compiled


def preferred_engines(engines: Mapping[str, Sequence[GuardedEngine]], try_engines: bool | None) -> dict[str, str]:
    """The engines that regions are tried on, by backend: the one that each is made for, where it runs here."""
    if try_engines is False:
        return {}
    return {name: listed[0].name for name, listed in engines.items() if name != HOST and listed[0].available().ok}


def run_stages(
    model: Model, ctx: Context, stages: Sequence[str], instrumentation: Instrumentation, passes: Sequence[Pass] = ()
) -> None:
    """Run all passes of `stages` over `model`, in place."""
    from dovetail.passes.composition import compose

    pipeline = compose(ctx.registry, stages, ctx.request, ctx.plugins, passes)
    ctx.progress = instrumentation.progress
    with gc_paused():
        pipeline.run(model, ctx, instrumentation)


def _refused(
    compiled: CompiledModel, preferred: Mapping[str, str], instrumentation: Instrumentation, whole: bool
) -> Refusals:
    if instrumentation.progress:
        instrumentation.progress("load", 0, 0)
    try:
        executor = compiled.executor()
    except DovetailError as error:
        # No engine at all takes some region. Where the one that the backend is made for refused it, the host may.
        refusals = getattr(error, "refusals", [])
        refused = nodes_to_refuse(compiled.plan, refusals, preferred, whole)
        if not refused:
            raise
        return refused
    return nodes_to_refuse(compiled.plan, executor.refusals, preferred, whole)


def _joined(known: Refusals, new: Refusals) -> Refusals:
    return {name: known.get(name, {}) | new.get(name, {}) for name in known.keys() | new.keys()}


def too_large(model: Model) -> str:
    """Why a model is not loaded just to look at it; empty if it may be."""
    nodes = sum(1 for _ in model.nodes())
    if nodes > _MOST_TRIED:
        return f"it has {counted(nodes, 'node')}"
    tensors = (value.const_value for _, graph in model.graphs() for value in graph.initializers.values())
    size = sum(tensor.nbytes for tensor in tensors if tensor is not None and tensor.dtype.name != "STRING")
    return f"its weights are {size >> 20} MiB" if size > _LARGEST_TRIED else ""
