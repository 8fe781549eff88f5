"""The driver: decides, carries out the decisions, and decides again when a pass or an engine rejects one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.ir.gc_pause import gc_paused
from dovetail.passes.instrumentation import Instrumentation
from dovetail.passes.manager import Manager
from dovetail.passes.rounds import rounds
from dovetail.planning.node_keys import keep_keys
from dovetail.planning.quantized_value import quantized_values_document
from dovetail.plugin.context import Context, Outcome, Round
from dovetail.plugin.pass_result import Result

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Pass
    from dovetail.passes.pipeline import Pipeline
    from dovetail.planning.plan import Plan
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.search import Asked


_PREPARE = ("normalize", "analyze")
_DECIDE = ("place", "type")
_CARRY_OUT = ("calibrate", "quantize", "join", "outline", "emit", "load")
# Nodes in graphs of earlier rounds before these, which are reference cycles, are collected. A collection visits every
# object of the process, so one per round would take longer than deciding on a small model.
_ABANDONED = 20_000


class Driver:
    """Compiles one request for one model, as often as it is called.

    Args:
        original: The source model, which is not changed.
        ctx: The context with the request; it receives the remarks of the last decision.
        passes: The caller's own passes, in addition to those of plugins.
        instrumentation: What to print and verify between passes.
        on_prepared: See `CompileJob`.
    """

    def __init__(
        self,
        original: Model,
        ctx: Context,
        passes: Sequence[Pass] = (),
        instrumentation: Instrumentation | None = None,
        on_prepared: Sequence[Callable[[Model], None]] = (),
    ):
        self._original, self._ctx, self._request, self._passes = original, ctx, ctx.request, passes
        self._watch, self._on_prepared = instrumentation or Instrumentation(), on_prepared
        self._prepared: Model | None = None
        self._again, self._abandoned = False, 0
        self._before, self._after = ctx.round.copy(), Round()
        self._refusals = ctx.refusals
        self._result: Result | None = None
        self._decided: Plan | None = None

    def prepare(self) -> Model:
        """Prepare the model and keep it, for callers that decide more than once; without this, no copy is made.

        Returns:
            The prepared model, which callers must not change.
        """
        if self._prepared is None:
            prepared = self._original.clone()
            self._ctx.begin_round(self._before)
            self._run(prepared, "prepare")
            self._prepared, self._after = prepared, self._ctx.round.copy()
        return self._prepared

    def decide(self, asked: Asked | None = None, pins: Sequence[str] = ()) -> tuple[Model, Plan]:
        """Return the model with a placement and types on every node, and its plan.

        Earlier rejections stay in force, unless other overrides are given.

        Args:
            asked: Overrides by node: high or low wherever nothing forbids it.
            pins: Pins in addition to those of the request. No pass that prepares a model reads pins, so they may differ
                from one decision to the next.

        Raises:
            DovetailError: The model or the request is at fault.
        """
        return self._decide(asked, pins, carry_out=False)

    def calibrate(self, decided: Model) -> bool:
        """Run the stage `calibrate` alone, in place, on a copy of the model that `decide` returned.

        The context then has the quantized values. A model that is calibrated in several ways is decided once.

        Returns:
            False if a pass rejected a decision.

        Raises:
            DovetailError: The model or the request is at fault.
        """
        plan = self._decided
        assert plan is not None, "`decide` comes first"
        self._ctx.outcome = Outcome(replace(plan, summary=dict(plan.summary), files=dict(plan.files)))
        return not self._run(decided, "calibrate").refused

    def compile(self, asked: Asked | None = None) -> CompiledModel:
        """Give every node its backend and precision, and insert the conversions this needs.

        Nodes that a pass rejects are placed elsewhere; this repeats until nothing is rejected.

        Args:
            asked: See `decide`.

        Raises:
            DovetailError: The model or the request is at fault.
        """
        from dovetail.plugin.compiled import CompiledModel

        ctx = self._ctx
        work, decided = self._decide(asked, (), carry_out=True)
        if not asked:
            self._refusals = ctx.refusals
        made = ctx.outcome
        trial, made.trial = made.trial, None  # the context outlives unloaded results
        decided.remarks, decided.values = list(ctx.remarks), quantized_values_document(made.quantized_values)
        return CompiledModel(
            work, decided, (*ctx.backends, ctx.host), files=dict(ctx.round.files), artifacts=made.artifacts,
            trial=trial, registry=ctx.registry, with_nodes=made.with_nodes,
        )  # fmt: skip

    @gc_paused()  # once, because the collector looks at all objects made meanwhile when it goes on
    def _decide(self, asked: Asked | None, pins: Sequence[str], carry_out: bool) -> tuple[Model, Plan]:
        ctx = self._ctx
        ctx.asked = dict(asked or {})
        ctx.request = replace(self._request, pins=(*self._request.pins, *pins)) if pins else self._request
        ctx.refusals = self._refusals.copy()
        for work in rounds(ctx, self._undecided(), self._undecided):
            if self._run(work, "decide").refused:
                continue
            plan = self._plan(work)
            if carry_out:
                keep_keys(work)
                ctx.outcome = Outcome(plan, work.clone() if any(one.artifacts for one in ctx.backends) else None)
                self._run(work, "carry out")
            else:
                self._decided = plan
        result, self._result = self._result, None
        if self._watch.finished and result is not None:
            self._watch.finished(result)
        return work, plan

    def _plan(self, decided: Model) -> Plan:
        from dovetail.compiler.planned import plan_of

        return plan_of(decided, self._ctx, self._original)

    def _undecided(self) -> Model:
        """Return a prepared model to decide on. Most requests decide once, so the first call makes no copy."""
        if self._prepared is None and not self._again:
            self._again = True
            work = self._original.clone()
            self._run(work, "prepare")
            for examine in self._on_prepared:
                examine(work)
            self._after = self._ctx.round.copy()
            return work
        prepared = self.prepare()
        self._abandoned += len(prepared.graph)
        if self._abandoned > _ABANDONED:
            self._abandoned = 0
            gc.collect()
        self._ctx.begin_round(self._after)
        with gc_paused():
            return prepared.continued()

    @cached_property
    def _parts(self) -> dict[str, Pipeline]:
        """The pipeline of the compilation, cut into parts: composed and configured once, before any run."""
        from dovetail.passes.composition import compose

        ctx = self._ctx
        groups = _PREPARE, _DECIDE, _CARRY_OUT
        stages = [stage for group in groups for stage in group]
        whole = compose(ctx.registry, stages, self._request, ctx.plugins, self._passes)
        first = whole.parts((_PREPARE, _DECIDE, _CARRY_OUT[:1], _CARRY_OUT[1:]))[2]
        return {**dict(zip(("prepare", "decide", "carry out"), whole.parts(groups), strict=True)), "calibrate": first}

    def _run(self, model: Model, part: str) -> Result:
        """Run one part of the compilation over `model`, in place."""
        self._ctx.progress = self._watch.progress
        with gc_paused():
            result = Manager(self._parts[part], self._ctx, self._watch, whole=True).run(model)
        if self._result is None:
            self._result = Result(model, remarks=result.remarks)
        self._result.model, self._result.stopped_after = model, result.stopped_after
        self._result.passes, self._result.remarks = self._result.passes + result.passes, result.remarks
        return result
