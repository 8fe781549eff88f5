"""Compiling: decide, carry out, and decide again what a pass or an engine refuses on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.counting import counted
from dovetail.errors import DovetailError
from dovetail.gc_pause import gc_paused
from dovetail.passes.context import Mark
from dovetail.passes.instrumentation import Instrumentation
from dovetail.planning.engine_refusals import refuse_nodes
from dovetail.planning.holdings import holdings_document
from dovetail.planning.placement import HOST

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Pass
    from dovetail.passes.result import Result
    from dovetail.planning.plan import Plan
    from dovetail.plugin.options import Asked
    from dovetail.runtime.guard import GuardedEngine

__all__ = ["Planner", "preferred_engines", "too_large"]

_PREPARE = ("normalise", "analyse")
_DECIDE = ("place", "type")
_CARRY_OUT = ("calibrate", "quantise", "join", "weights", "outline", "emit")

_ROUNDS = 8
_LARGEST_TRIED = 1 << 30  # bytes of weights; engines need as much again
_MOST_TRIED = 20_000  # nodes; the time that engines take to prepare need not be linear


class Planner:
    """Decides one request for one model, as often as it is asked.

    Args:
        original: The model, which stays as it is.
        ctx: The request; it gets the remarks of the last decision.
        passes: Passes of the caller, in addition to those of plugins.
        instrumentation: What to print and verify on the way.
    """

    def __init__(
        self, original: Model, ctx: Context, passes: Sequence[Pass] = (), instrumentation: Instrumentation | None = None
    ):
        self._original, self._ctx, self._request, self._passes = original, ctx, ctx.request, passes
        self._watch = instrumentation or Instrumentation()
        self._prepared: Model | None = None
        self._rounds = 0
        self._before, self._after = ctx.mark(), Mark()
        self._refusals = ctx.refusals

    def prepare(self) -> None:
        """Prepare the model and keep it, for callers that decide more than once; others are served without a copy."""
        if self._prepared is None:
            prepared = self._original.clone()
            self._ctx.begin_round(self._before)
            self._run(prepared, _PREPARE)
            self._prepared, self._after = prepared, self._ctx.mark()

    def decide(self, asked: Asked | None = None, pins: Sequence[str] = ()) -> tuple[Model, Plan]:
        """The model with a place and types for every node, and the plan that says so.

        What was refused before stays refused, unless other nodes are asked for.

        Args:
            asked: Nodes that shall be high or low wherever nothing forbids it.
            pins: Pins beside those of the request. No pass that prepares a model reads pins, so they may differ from
                one decision to the next.

        Raises:
            DovetailError: The model or the request is at fault.
        """
        ctx = self._ctx
        ctx.asked = dict(asked or {})
        ctx.request = replace(self._request, pins=(*self._request.pins, *pins)) if pins else self._request
        ctx.refusals = self._refusals.copy()
        return self._round()

    def compile(
        self,
        engines: Mapping[str, Sequence[GuardedEngine]],
        asked: Asked | None = None,
        try_engines: bool | None = None,
    ) -> CompiledModel:
        """Give every node its backend and precision, with the conversions that needs.

        The regions are then loaded on the engines that the backends are made for, where these run on this machine. What
        a pass or an engine refuses is placed elsewhere, and that is repeated until nothing is refused.

        Args:
            engines: The engines of each backend.
            asked: As for `decide`.
            try_engines: Load the regions (True), do not (False), or load them unless the model is large (None).

        Raises:
            DovetailError: The model or the request is at fault.
        """
        from dovetail.compiled import CompiledModel

        ctx = self._ctx
        preferred = preferred_engines(engines, try_engines)
        tries = 0
        work, decided = self.decide(asked)
        while True:
            ctx.decided = work.clone() if any(getattr(backend, "artifacts", ()) for backend in ctx.backends) else None
            if self._run(work, _CARRY_OUT).refused:
                work, decided = self._round()
                continue
            decided.remarks, decided.values = list(ctx.remarks), holdings_document(ctx.holdings)
            compiled = CompiledModel(work, decided, engines, files=dict(ctx.files), artifacts=ctx.artifacts)
            if not preferred.keys() & decided.summary["coverage"].keys():
                break
            if try_engines is None and (why := too_large(work)):
                compiled.untried = why
                break
            tries += 1
            if tries == _ROUNDS:
                break
            # Engines name one node at a time; where there is no end to it, what is left of the region goes as a whole.
            self._try(compiled, preferred, whole=tries >= _ROUNDS - 1)
            if not ctx.refusals.fresh:
                break
            work, decided = self._round()
        if not asked:
            self._refusals = ctx.refusals
        return compiled

    def _round(self) -> tuple[Model, Plan]:
        """Decide on a fresh graph, with everything that was refused so far."""
        from dovetail.planning.plan import Plan

        self._rounds += 1
        if self._rounds == 1 and self._prepared is None:
            # Most requests decide once, so that the first time keeps no copy of what is decided on.
            work = self._original.clone()
            self._run(work, (*_PREPARE, *_DECIDE))
        else:
            self.prepare()
            self._ctx.begin_round(self._after)
            with gc_paused():
                work = self._prepared.clone()
            self._run(work, _DECIDE)
        with gc_paused():
            return work, Plan.extract(work, self._ctx, self._original)

    def _run(self, model: Model, stages: Sequence[str]) -> Result:
        """Run all passes of `stages` over `model`, in place."""
        from dovetail.passes.composition import compose

        ctx = self._ctx
        pipeline = compose(ctx.registry, stages, ctx.request, ctx.plugins, self._passes)
        ctx.progress, ctx.decided_outside = self._watch.progress, True
        with gc_paused():
            return pipeline.run(model, ctx, self._watch)

    def _try(self, compiled: CompiledModel, preferred: Mapping[str, str], whole: bool) -> None:
        """Refuse what the engines refuse when the regions are loaded."""
        if self._watch.progress:
            self._watch.progress("load", 0, 0)
        self._ctx.current_pass = "load"
        try:
            refusals = compiled.executor().refusals
        except DovetailError as error:
            # No engine at all takes some region. Where the one that the backend is made for refused it, the host may.
            refuse_nodes(compiled.plan, getattr(error, "refusals", []), preferred, self._ctx, whole)
            if not self._ctx.refusals.fresh:
                raise
        else:
            refuse_nodes(compiled.plan, refusals, preferred, self._ctx, whole)


def preferred_engines(engines: Mapping[str, Sequence[GuardedEngine]], try_engines: bool | None) -> dict[str, str]:
    """The engines that regions are tried on, by backend: the one that each is made for, where it runs here."""
    if try_engines is False:
        return {}
    return {name: listed[0].name for name, listed in engines.items() if name != HOST and listed[0].available().ok}


def too_large(model: Model) -> str:
    """Why a model is not loaded just to look at it; empty if it may be."""
    nodes = sum(1 for _ in model.nodes())
    if nodes > _MOST_TRIED:
        return f"it has {counted(nodes, 'node')}"
    tensors = (value.const_value for _, graph in model.graphs() for value in graph.initializers.values())
    size = sum(tensor.nbytes for tensor in tensors if tensor is not None and tensor.dtype.name != "STRING")
    return f"its weights are {size >> 20} MiB" if size > _LARGEST_TRIED else ""
