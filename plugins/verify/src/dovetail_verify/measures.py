"""What trials measure of a result: how far it is from its original, by the plan's arithmetic or by the engines here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.plugin import Measure
from dovetail_runtime.data_workers import data_workers

from dovetail_verify.compare import verify
from dovetail_verify.held_out import judged
from dovetail_verify.parts import verified_in_parts
from dovetail_verify.runners import CachedOriginal, exact_runner, source_runner

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context, Progress
    from dovetail.plugin import CompileJob, Trial

    from dovetail_verify.compare import OutputVerification


@dataclass(frozen=True, eq=False)
class Compared(Measure):
    """The comparison of a result with its original, by the arithmetic of the plan, which is that of every machine.

    Attributes:
        original: The model.
        reference: Runs it.
        ctx: A context of the request.
        data: See `dovetail_runtime.data.sources.read_data`.
        others: Rate a result by what so many other batches are likely to reach together, as a multiple of those of the
            data; 0 for what those of the data reach.
        is_search: See `dovetail.plugin.Measure`.
        progress: Called with (what, done, total).
    """

    original: Model
    reference: CachedOriginal
    ctx: Context
    data: object
    others: float = 0.0
    is_search: bool = False
    progress: Progress | None = None

    @classmethod
    def on(cls, data: object, original: Model, ctx: Context, progress: Progress | None = None) -> Compared:
        """Return the comparison with a model on data."""
        return cls(original, CachedOriginal(source_runner(original, ctx)), ctx, data, progress=progress)

    def begins(self, run: int) -> None:
        """Report that a run begins."""
        if self.progress:
            self.progress(f"accuracy, run {run}", 0, 0)

    def of(self, trial: Trial) -> OutputVerification:
        """Compare the result of a trial, on parts of the data in other processes where a cluster helps.

        Raises:
            DovetailError: One of both cannot be run.
        """
        compiled, workers = trial.result, data_workers()
        found = None
        if workers is not None:
            found = verified_in_parts(workers, self.original, compiled, self.data, None, self.others, sent=True)
        if found is None:
            run = exact_runner(compiled, self.ctx)
            whole = compiled.artifacts is None  # programs may run in a simulator
            found = verify(
                self.original, self.reference, run, self.data, made=compiled.model, others=self.others, whole=whole
            )
        return replace(found, outputs=found.cautious) if self.others else found

    def text(self, figure: OutputVerification) -> str:
        """Return the figure of the worst output."""
        return figure.worst


@dataclass(frozen=True, eq=False)
class Judged(Measure):
    """The comparison of what the engines of a result compute with its original, on the part of the data that judges."""

    job: CompileJob

    def of(self, trial: Trial) -> OutputVerification:
        """Compare the result of a trial.

        Raises:
            DovetailError: One of both cannot be run.
        """
        return judged(self.job, trial.result)

    def text(self, figure: OutputVerification) -> str:
        """Return the figure of the worst output."""
        return figure.worst
