"""The `record-refinements` pass: write down in the plan what was refined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass

from dovetail_quantize.refining.steps import steps_of

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class RecordRefinements(Pass):
    """Write down which refinements were made, and keep what follows from data in a file beside the plan.

    Given:  the biases of 12 layers were corrected
    Result: `refined` in the summary of the plan, with the steps of every backend, the number of layers that each
            changed, and the name of the file with the corrections; a replay reads it
    """

    name = "record-refinements"
    stage = "calibrate"
    requires = ("calibrate",)
    after = ("equalise", "smooth", "round-weights", "correct-biases")

    def run(self, model: Model, ctx: Context) -> bool:
        """Fill the summary of the plan that is being carried out."""
        if ctx.refusals.fresh or not any(steps_of(ctx).values()):
            return False
        if ctx.outcome.holdings:
            from dovetail_quantize.refining.record import Record

            Record.of(ctx).finish(ctx)
        else:
            ctx.remark("analysis", "", "refine", "nothing is quantised, so nothing was refined")
        return False
