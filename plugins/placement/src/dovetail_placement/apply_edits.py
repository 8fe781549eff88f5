"""The `apply-edits` pass: change the graph as the request and a replayed plan say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass
from dovetail.plugin import Edit

from dovetail_placement.edits import apply_edits

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class ApplyEdits(Pass):
    """Apply the edits of the request, and before those the edits of a replayed plan.

    Given:  a normalised model, `--edit unit-conv=concat_12:after`
    Result: the model with what the edit `unit-conv` adds after the node `concat_12`
    """

    name = "apply-edits"
    stage = "analyse"
    before = ("edge-kinds", "measure-ranges")

    def run(self, model: Model, ctx: Context) -> bool:
        """Apply them; nothing else changes."""
        planned = [Edit.from_dict(entry) for entry in getattr(ctx.request.plan, "edits", ())]
        known = len(ctx.round.edits)
        for edits in (planned, [Edit.parse(text) for text in ctx.request.edits]):
            ctx.round.remarks += apply_edits(model, edits, ctx)
        ctx.count("edits", len(ctx.round.edits) - known)
        return len(ctx.round.edits) > known
