"""The passes that quantize: when each runs, and what it does. The work is imported where something is quantized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph
from dovetail.passes import Pass
from dovetail.planning import get_placement
from dovetail_placement.source_scales import lifted_values
from dovetail_precision.sharing_groups import quantized_forms

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


class Calibrate(Pass):
    """Find scale and zero point of every value that is computed or read in a quantized format.

    Given:  conv_1 reads %x in int8[symmetric], and data on which %x lies between -1 and 2
    Result: a quantized value of %x with the scale 2/127; the graph does not change

    Weights are observed directly, activations on the data; a scale such as X*W is the product of the scales at these
    ports. A replayed plan supplies the parameters that came from data.
    """

    name = "calibrate"
    stage = "calibrate"

    def run(self, model: Model, ctx: Context) -> bool:
        """Fill `ctx.outcome.quantized_values`.

        Raises:
            DovetailError: Data is required but missing, or a value cannot be calibrated.
        """
        forms = quantized_forms(ctx.analysis(FlatGraph, model), model.ir.opset_imports)
        if not forms:
            return False
        from dovetail_quantize.calibrate import calibrate_forms

        calibrate_forms(model, forms, ctx)
        return False


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
        lifted = lifted_values(model.graph)
        if not ctx.outcome.quantized_values and not lifted:
            return False
        from dovetail_quantize.inserting import insert_conversions
        from dovetail_quantize.restored_conversions import restore_conversions

        revision = model.revision
        insert_conversions(model, ctx)
        restore_conversions(model, lifted, ctx)
        return model.revision != revision


@dataclass(frozen=True)
class IntegerArithmetic(Pass):
    """Lower quantized nodes to integer operators where their backend asks for it (`emit: {arithmetic: integers}`).

    Given:  %q = QuantizeLinear(Conv(DequantizeLinear(%x), DequantizeLinear(%w), DequantizeLinear(%b)))
    Result: %q = Cast(Clip(Round(Mul(Cast(Add(ConvInteger(%x, %w), %b)), %multiplier))))

    `dovetail_quantize.arithmetic` defines bit for bit what every operator computes. Operators without a definition are
    left unchanged, with a remark. Values that other backends read keep their conversions.

    The last node of a lowering takes the name of the node that it replaces, and its integer result takes the name of
    the float result.

    Attributes:
        everywhere: Lower the nodes of all backends, as a comparison does whose result must not depend on how an engine
            sums and rounds.
    """

    name = "integer-arithmetic"
    stage = "quantize"
    requires = ("quantize",)
    everywhere: bool = False

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the main graph, the only one with quantized nodes."""
        placed = (get_placement(node) for node in model.graph) if self.everywhere else ()
        wanted = {one.backend for one in placed if one is not None}
        wanted |= {one.name for one in ctx.backends if one.arithmetic == "integers"}
        if not wanted:
            return False
        from dovetail_quantize.arithmetic.integer_arithmetic import lower_to_integers

        return lower_to_integers(model, wanted, ctx)
