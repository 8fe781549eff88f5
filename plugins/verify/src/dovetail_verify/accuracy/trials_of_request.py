"""Trials of a request: compiled here, and compared here or, if a cluster helps, on parts of the data in others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING

from dovetail_runtime.data_workers import data_workers

from dovetail_verify.accuracy.trials import AccuracyTrials
from dovetail_verify.parts import verified_in_parts
from dovetail_verify.runners import exact_runner, searching, source_runner

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context, Progress, Request
    from dovetail.plugin import Asked, CompiledModel

    from dovetail_verify.compare import OutputVerification


def trials_of(
    original: Model,
    proceed: Callable[[Asked], CompiledModel],
    asks: str,
    request: Request,
    ctx: Context,
    progress: Progress | None,
    level: str = "high",
    data: object = None,
) -> AccuracyTrials:
    """Create trials of a request.

    Args:
        original: The model.
        proceed: Compiles the request.
        asks: The goal to name in remarks.
        request: The request.
        ctx: A context of the request.
        progress: Called with (what, done, total).
        level: What raised nodes are computed in: `high`, or `floats` of backends without integers.
        data: What to measure on; that of the request by default.
    """

    def compile_with(raised: Collection[str], lowered: Collection[str], is_trial: bool) -> CompiledModel:
        asked = dict.fromkeys(raised, (level, asks)) | dict.fromkeys(lowered, ("low", asks))
        with searching() if is_trial else nullcontext():
            return proceed(asked)

    def compare_elsewhere(compiled: CompiledModel, data: object, others: float) -> OutputVerification | None:
        workers = data_workers()
        if workers is None:
            return None
        return verified_in_parts(workers, original, compiled, data, None, others, sent=True)

    measured_on = request.data if data is None else data
    reference = source_runner(original, ctx)
    return AccuracyTrials(
        original, compile_with, reference, lambda compiled: exact_runner(compiled, ctx), measured_on, progress,
        compare_elsewhere=compare_elsewhere,
    )  # fmt: skip
