"""The pass manager: runs a pipeline with timing, statistics, verification, hooks and failure reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, system_error
from dovetail.passes.guards import Interface, observe
from dovetail.passes.instrumentation import Instrumentation, Printer
from dovetail.passes.nesting import check_anchors, regions_under
from dovetail.passes.reproducer import describe_saved
from dovetail.planning.remark import Remark
from dovetail.plugin.invariant import invariants_of
from dovetail.plugin.loading.frontends import give_dialect
from dovetail.plugin.loading.isolation import described, foreign_output
from dovetail.plugin.loading.loader import PluginSet
from dovetail.plugin.pass_ import Pass
from dovetail.plugin.pass_result import PassResult, Result
from dovetail.plugin.steps import Fixpoint, Nested, Step, passes_in

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.pipeline import Pipeline
    from dovetail.plugin.context import Context
    from dovetail.plugin.partitioning import Regions


class Manager:
    """Runs the steps of a pipeline once; `dovetail.passes.rounds` repeats the run after a rejection.

    Args:
        pipeline: The steps.
        context: The context of the run.
        instrumentation: What to print, verify and write during the run.
        whole: Whether the pipeline has all passes of its stages, so that invariants hold after each of them.
    """

    def __init__(
        self, pipeline: Pipeline, context: Context, instrumentation: Instrumentation | None = None, whole: bool = False
    ):
        self._pipeline = pipeline
        self._ctx = context
        self._watch = instrumentation or Instrumentation()
        self._printer = Printer(self._watch)
        self._plugins = context.plugins or PluginSet()
        self._stopped_after = ""
        self._position = 0
        self._handed_on = False
        self._whole = whole

    def run(self, model: Model, start: int = 0, stop: int | None = None) -> Result:
        """Run the steps from `start` to `stop` over `model`, in place.

        The run ends early after a step that rejected a decision; the result says so, and the caller decides again.

        Raises:
            DovetailError: The model is invalid, a pass rejected it, failed, or left it invalid, or a hook changed it.
        """
        steps = self._pipeline.steps[:stop]
        self._watch.check_names(self._pipeline.names())
        self._ctx.model = self._model = model
        give_dialect(model, self._ctx.registry)
        # Checked before any pass runs, so that a defect of the source model is not blamed on a pass.
        self._source = model.source
        check_anchors(self._pipeline.steps, model, self._ctx)
        if model.revision == 0:
            self._ctx.round.pipelines.clear()
        first = next(passes_in(steps[start:]), None)
        if first is not None and not first.takes_anything:
            self._verify()
        result = Result(model, remarks=self._ctx.remarks)
        for position, step in enumerate(steps[start:], start):
            self._position = position
            following = next(iter(steps[position + 1 :]), None)
            # If this step leaves the model unchanged and the next pass accepts invalid models, verify after the latter.
            self._handed_on = isinstance(following, Pass) and following.takes_anything
            self._progress(str(step) if isinstance(step, (Fixpoint, Nested)) else step.name, position)
            result.passes.append(self._step(step))
            if self._stopped_after:
                break
            if self._ctx.refusals.fresh:
                result.refused = True
                return result
            if self._whole and (stage := _stage_of(step)) and stage != _stage_of(following):
                self._check_stage(stage)
        self._progress("", len(self._pipeline))
        self._ctx.round.pipelines.append(",".join(map(str, steps[start:])))
        result.stopped_after = self._stopped_after
        return result

    def _check_stage(self, stage: str) -> None:
        """Check the invariants of a stage, unless verification is off."""
        for invariant in invariants_of(self._ctx.registry, stage) if self._watch.verify_each else ():
            for problem in invariant.violations(self._model, self._ctx):
                passes = ", ".join(step.name for step in passes_in(self._pipeline.steps) if step.stage == stage)
                hint = f"this is a defect of one of its passes: {passes}"
                raise DovetailError(f"after the stage '{stage}', {invariant.text}, but {problem}", hint)

    def _progress(self, what: str, done: int) -> None:
        if self._watch.progress:
            self._watch.progress(what, done, len(self._pipeline))

    def _steps(self, steps: Iterable[Step]) -> list[PassResult]:
        """Run steps in order, up to the one to stop after."""
        results = []
        for step in steps:
            results.append(self._step(step))
            if self._stopped_after:
                break
        return results

    def _step(self, step: Step) -> PassResult:
        if not isinstance(step, (Fixpoint, Nested)):
            return self._pass(step)
        first_remark = len(self._ctx.remarks)
        result = self._fixpoint(step) if isinstance(step, Fixpoint) else self._nested(step)
        result.remarks = self._ctx.remarks[first_remark:]
        return result

    def _nested(self, nested: Nested) -> PassResult:
        """Run a nested pipeline on each region of its backend separately, then verify the whole model."""
        name = f"backend:{nested.backend}"
        regions = regions_under(nested, self._model)
        children = []
        for number, region in enumerate(regions, 1):
            self._progress(f"{name}, region {number} of {len(regions)}", self._position)
            children.append(self._region(nested, region, regions))
            if self._stopped_after:
                break
        if not regions:
            why = f"{nested} did nothing: {nested.backend} has no region"
            self._ctx.remarks.append(Remark("analysis", "", name, "no-region", why))
        result = PassResult.of(name, children)
        if result.changed:
            start = time.perf_counter()
            regions.finish()
            self._verify()
            result.verify_seconds = time.perf_counter() - start
        return result

    def _region(self, nested: Nested, region: Any, regions: Regions) -> PassResult:
        model, part = self._model, regions.take(region)
        where = self._printer.where = f" in region {region.index} of {nested.backend}"
        self._model = self._ctx.model = part
        try:
            result = PassResult.of(f"region {region.index}", self._steps(nested.steps))
        finally:
            self._model, self._ctx.model, self._printer.where = model, model, ""
        if result.changed:
            try:
                regions.put_back(region, part)
            except DovetailError as error:
                hint = error.hint or "passes of a nested pipeline may change nothing outside of the region"
                raise DovetailError(f"{nested}{where}: {error.message}", hint) from error
        return result

    def _fixpoint(self, fixpoint: Fixpoint) -> PassResult:
        children: list[PassResult] = []
        for _ in range(fixpoint.limit):
            done = self._steps(fixpoint.steps)
            children += done
            if self._stopped_after or not any(child.changed for child in done):
                break
        else:
            why = f"{fixpoint} was still changing the model after {fixpoint.limit} rounds"
            raised = f"raise the limit: fixpoint{{limit={2 * fixpoint.limit}}}(...)"
            self._ctx.remarks.append(Remark("missed", "", "fixpoint", "fixpoint-limit", why, advice=raised))
        return PassResult.of("fixpoint", children)

    def _verify(self) -> None:
        """Verify the model, unless verification is off."""
        if self._watch.verify_each:
            self._ctx.analysis(_Verified, self._model)

    def _pass(self, pass_: Pass) -> PassResult:
        watch, ctx, model = self._watch, self._ctx, self._model
        result = PassResult(pass_.name)
        first_remark = len(ctx.remarks)
        observe(self._plugins, self._printer.before_pass, pass_=pass_, model=model)
        ctx.current_pass, ctx.counts = pass_.name, result.counts
        interface = Interface(model)
        start, revision = time.perf_counter(), model.revision
        try:
            with foreign_output(f"pass {pass_.name!r} of {self._owner(pass_)}"):
                changed = pass_.run(model, ctx)
            if not isinstance(changed, bool):
                raise TypeError(f"run() must return True (changed something) or False, and returned {changed!r}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a pass must not end the program silently
            failure = self._failure(pass_, error)
            if failure is error:
                raise
            raise failure from error
        finally:
            ctx.current_pass, ctx.counts = "", Counter()
        if broken := interface.broken_by(model):
            raise self._failure(pass_, DovetailError(broken), invalid=True, judge_source=False)
        result.seconds = time.perf_counter() - start
        # Trust a revision change as well: a pass may forget to report it.
        result.changed = changed or model.revision != revision
        if changed and model.revision == revision:
            model.touch()
        if result.changed or pass_.takes_anything and not self._handed_on:
            start = time.perf_counter()
            try:
                self._verify()
            except DovetailError as error:
                raise self._failure(pass_, error, invalid=True) from error
            result.verify_seconds = time.perf_counter() - start
        result.remarks = ctx.remarks[first_remark:]
        observe(self._plugins, self._printer.after_pass, pass_=pass_, model=model, result=result)
        if pass_.name == watch.stop_after:
            self._stopped_after = pass_.name
        return result

    def _owner(self, pass_: Pass) -> str:
        """Return the distribution that registered a pass; for an unregistered pass, its module."""
        table = self._ctx.registry.pass_
        return table.entry(pass_.name).owner if pass_.name in table else type(pass_).__module__

    def _failure(
        self, pass_: Pass, error: BaseException, invalid: bool = False, judge_source: bool = True
    ) -> DovetailError:
        """Report a failed pass to hooks, write the reproducer, and return the error to raise.

        Args:
            pass_: The pass.
            error: The exception it raised, or the verifier error about the model it left.
            invalid: Whether it returned normally but left an invalid model.
            judge_source: Whether the source model may be at fault, and is checked.
        """
        observe(self._plugins, self._printer.pass_failed, pass_=pass_, model=self._model, error=error)
        where = self._printer.where
        if isinstance(error, DovetailError) and not invalid:
            return error
        if isinstance(error, OSError) and error.errno is not None:
            return system_error(error, f"pass {pass_.name!r}{where}")
        owner = self._owner(pass_)
        what = f"left an invalid model: {error}" if invalid else f"failed: {described(error)}"
        if judge_source and self._source is not None and (fault := self._source.fault()):
            message = f"{self._source.name}: the model is not correct: {fault}"
            return DovetailError(message, f"found because pass {pass_.name!r}{where} {what}")
        hint = "this is a defect of the pass, not of the model"
        if self._watch.reproducer:
            path, weights = self._watch.reproducer, self._watch.reproducer_weights
            hint += f"; {describe_saved(path, self._source, self._pipeline, self._ctx, what, weights)}"
        return DovetailError(f"pass {pass_.name!r} of {owner}{where} {what}", hint)


def _stage_of(step: Step | None) -> str | None:
    return step.stage if isinstance(step, Pass) else None


class _Verified:
    """A verified model, as an analysis: consecutive pipelines verify a revision only once."""

    @classmethod
    def compute(cls, model: Model, _: Context) -> _Verified:
        """Verify `model`; raise DovetailError if it is invalid."""
        import dovetail.ir

        dovetail.ir.verify_model(model)
        return cls()
