"""The `quantize` pass: insert QuantizeLinear and DequantizeLinear for the quantized values of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.passes import Pass

from dovetail_quantize.inserting import insert_conversions
from dovetail_quantize.restored_conversions import restore_conversions

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


class Quantize(Pass):
    """Insert the conversions of quantized values, and store weights in integers.

    Given:  conv_1 reads %x in int8[symmetric] with the scale 0.02, and computes %y in int8[symmetric]
    Result: %x goes through QuantizeLinear and DequantizeLinear before conv_1, %y after it, and weights are stored in
            int8 with a DequantizeLinear. Operators still compute floats: an engine with integer kernels fuses them.

    There is one conversion per value and quantized value. The backend's `border` entry decides whether integers or
    floats cross a region border. An int32 accumulator that leaves a region needs no conversion, because the operator's
    float result represents it.

    Conversions of the source that left the graph before placement, for backends with scales of their own, are restored
    where a value is read in floats.
    """

    name = "quantize"
    stage = "quantize"
    requires = ("calibrate",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Insert the conversions of all quantized values."""
        revision = model.revision
        insert_conversions(model, ctx)
        restore_conversions(model, ctx)
        return model.revision != revision
