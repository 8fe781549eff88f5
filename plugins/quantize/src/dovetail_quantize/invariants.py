"""The invariant of quantized values after the stage `calibrate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.plugin import Invariant

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


class Calibrated(Invariant):
    """Checked after `calibrate`."""

    stage = "calibrate"
    text = "every quantized value has a scale and a zero point, except for weights in blocks"

    def violations(self, model: Model, ctx: Context) -> Iterator[str]:
        """Yield quantized values without them. Those of weights in blocks are computed when the weights are written."""
        for one in ctx.outcome.quantized_values:
            if one.parameters is None and one.format.group is None:
                yield f"'{one.value}' has none as {one.format}"
