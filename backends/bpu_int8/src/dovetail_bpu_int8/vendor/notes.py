"""The `vendor-notes` pass: say what of the vendor's files is not done here, or done otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass

from dovetail_bpu_int8.wishes import OPTION

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class VendorNotes(Pass):
    """Remark what the files of hb_mapper and hb_compile ask for that is not done, or done otherwise; it only remarks.

    Given:  config.yaml:31, optimization asymmetric
    Result: a note that activations are symmetric here
    """

    name = "vendor-notes"
    stage = "normalise"

    def run(self, model: Model, ctx: Context) -> bool:
        """Remark what the option has recorded."""
        for why, suggest in ctx.request.options.get(OPTION, {}).get("notes", ()):
            ctx.remark("analysis", "", "vendor-file", why, suggest=suggest)
        return False
