"""The `quantise` pass: put a pair of QuantizeLinear and DequantizeLinear where a plan holds a value in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail.ir.required import name_of
from dovetail.passes import Pass
from dovetail_precision.held import Held
from dovetail_precision.sharing_groups import held_values

from dovetail_quantize.inserting import Inserter

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.holdings import Holding


@dataclass(frozen=True)
class Quantise(Pass):
    """Hold values in the integers that the plan says.

    Given:  conv_1 reads %x in int8[symmetric] with the scale 0.02, and computes %y in int8[symmetric]
    Result: %x goes through QuantizeLinear and DequantizeLinear before conv_1, %y behind it, and weights are stored in
            int8 with a DequantizeLinear. Operators still compute floats: an engine with integer kernels fuses them.

    There is one conversion per value and holding. Whether integers or floats cross the border of a region is what the
    backend says under `border`. An accumulator in int32 that leaves a region needs no conversion: the float that the
    operator computes is what it stands for.
    """

    name = "quantise"
    stage = "quantise"
    requires = ("calibrate",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Insert the conversions of all holdings."""
        held = held_values(ctx.analysis(FlatGraph, model), model.ir.opset_imports)
        if not held:
            return False
        holdings = {(one.value, one.format, one.group): one for one in ctx.outcome.holdings}
        inserter = Inserter(model, ctx)
        by_value: dict[int, list[tuple[Held, Holding]]] = {}
        for one in held:
            holding = holdings[name_of(one.value), one.format, one.name]
            by_value.setdefault(id(one.value), []).append((one, holding))
        for forms in by_value.values():
            inserter.convert(forms)
        model.touch()
        return True
