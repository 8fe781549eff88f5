"""Compiling: decide, carry out, and decide again what a pass or an engine refuses on the way."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.gc_pause import gc_paused
from dovetail.passes.context import Mark
from dovetail.passes.instrumentation import Instrumentation
from dovetail.planning.holdings import holdings_document
from dovetail.planning.identity import keep_keys

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Pass
    from dovetail.passes.pipeline import Pipeline
    from dovetail.passes.result import Result
    from dovetail.planning.plan import Plan
    from dovetail.plugin.options import Asked


_PREPARE = ("normalise", "analyse")
_DECIDE = ("place", "type")
_CARRY_OUT = ("calibrate", "quantise", "join", "outline", "emit", "load")


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

    def prepare(self) -> Model:
        """Prepare the model and keep it, for callers that decide more than once; others are served without a copy.

        Returns:
            The model that is decided on. Callers do not change it.
        """
        if self._prepared is None:
            prepared = self._original.clone()
            self._ctx.begin_round(self._before)
            self._run(prepared, "prepare")
            self._prepared, self._after = prepared, self._ctx.mark()
        return self._prepared

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

    def compile(self, asked: Asked | None = None) -> CompiledModel:
        """Give every node its backend and precision, with the conversions that needs.

        What a pass refuses on the way is placed elsewhere, and that is repeated until nothing is refused.

        Args:
            asked: As for `decide`.

        Raises:
            DovetailError: The model or the request is at fault.
        """
        from dovetail.compiled import CompiledModel

        ctx = self._ctx
        work, decided = self.decide(asked)
        while self._carry_out(work, decided).refused:
            work, decided = self._round()
        if not asked:
            self._refusals = ctx.refusals
        decided.remarks, decided.values = list(ctx.remarks), holdings_document(ctx.holdings)
        trial, ctx.trial = ctx.trial, None  # the context outlives results that are unloaded
        return CompiledModel(
            work, decided, (*ctx.backends, ctx.host), files=dict(ctx.files), artifacts=ctx.artifacts,
            trial=trial, registry=ctx.registry,
        )  # fmt: skip

    def _carry_out(self, work: Model, decided: Plan) -> Result:
        ctx = self._ctx
        ctx.plan = decided
        keep_keys(work)
        ctx.decided = work.clone() if any(getattr(backend, "artifacts", ()) for backend in ctx.backends) else None
        return self._run(work, "carry out")

    def _round(self) -> tuple[Model, Plan]:
        """Decide on a fresh graph, with everything that was refused so far."""
        from dovetail.planning.plan import Plan

        self._rounds += 1
        if self._rounds == 1 and self._prepared is None:
            # Most requests decide once, so that the first time keeps no copy of what is decided on.
            work = self._original.clone()
            self._run(work, "prepare", "decide")
        else:
            # What earlier rounds left behind are graphs, whose nodes refer to each other.
            gc.collect()
            prepared = self.prepare()
            self._ctx.begin_round(self._after)
            with gc_paused():
                work = prepared.clone()
            self._run(work, "decide")
        with gc_paused():
            return work, Plan.extract(work, self._ctx, self._original)

    @cached_property
    def _parts(self) -> dict[str, Pipeline]:
        """The pipeline of the compilation in parts: composed and configured by plugins once, before anything runs."""
        from dovetail.passes.composition import compose

        ctx = self._ctx
        groups = _PREPARE, _DECIDE, _CARRY_OUT
        stages = [stage for group in groups for stage in group]
        whole = compose(ctx.registry, stages, self._request, ctx.plugins, self._passes)
        return dict(zip(("prepare", "decide", "carry out"), whole.parts(groups), strict=True))

    def _run(self, model: Model, *parts: str) -> Result:
        """Run all passes of parts of the compilation over `model`, in place."""
        from dovetail.passes.pipeline import Pipeline

        ctx = self._ctx
        found = [self._parts[name] for name in parts]
        pipeline = Pipeline((step for part in found for step in part), found[0].whole)
        ctx.progress, ctx.decided_outside = self._watch.progress, True
        with gc_paused():
            return pipeline.run(model, ctx, self._watch)
