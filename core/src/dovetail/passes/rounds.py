"""Rounds of decisions: repeat a pipeline from its first decision on until no pass rejects one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes.instrumentation import Instrumentation
from dovetail.passes.manager import Manager
from dovetail.plugin.steps import passes_in

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.pipeline import Pipeline
    from dovetail.plugin.context import Context
    from dovetail.plugin.pass_result import Result

DECIDING_STAGE = "place"
"""The stage at which a round begins."""


def rounds(ctx: Context, model: Model, undecided: Callable[[], Model]) -> Iterator[Model]:
    """Yield a model to decide on, again after each round in which something was rejected.

    Args:
        ctx: The context of the run. Remarks and files of a round are dropped before the next one; rejections stay.
        model: The model of the first round; also used for the next round if its graph was not changed.
        undecided: Returns the model as it was before the first round.
    """
    before = ctx.round.copy()
    while True:
        revision, ctx.refusals.fresh = model.revision, False
        yield model
        if not ctx.refusals.fresh:
            return
        ctx.refusals.next_round()
        if model.revision != revision:
            model = undecided()
        ctx.begin_round(before)


def run_pipeline(
    pipeline: Pipeline, model: Model, ctx: Context, instrumentation: Instrumentation | None = None
) -> Result:
    """Run a pipeline over `model`, in place; see `Pipeline.run`."""
    watch = instrumentation or Instrumentation()
    manager = Manager(pipeline, ctx, watch)
    stages = [{pass_.stage for pass_ in passes_in([step])} for step in pipeline.steps]
    start = next((at for at, found in enumerate(stages) if DECIDING_STAGE in found), None)
    result = manager.run(model, 0, start)
    if start is not None and not result.refused and not result.stopped_after:
        kept = model.clone()

        def undecided() -> Model:
            model.replace(kept.clone())
            return model

        for work in rounds(ctx, model, undecided):
            part = manager.run(work, start)
            result.passes, result.remarks = result.passes + part.passes, part.remarks
            result.stopped_after = part.stopped_after
    if result.refused:
        raise DovetailError(
            f"pass {result.passes[-1].name!r} refuses a placement, and this pipeline cannot decide again",
            "run the passes from place on in one pipeline, or compile the model",
        )
    if watch.finished:
        watch.finished(result)
    return result
