"""The `round-weights` pass: weights rounded for the results of their layer, not each to the nearest integer.

The question is that of AdaRound (Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization", 2020):
down or up, for every element, so that the error of the layer's results is smallest. It is answered by coordinate
descent on that quadratic error (`descent`), as in QuantEase (Behdin et al., 2023), instead of by training a relaxed
rounding with Adam: every step lowers the error, nothing has to be tuned, and a layer takes seconds at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass

from dovetail_quantize.refining.steps import ROUNDING, needs_data, wanted

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class RoundWeights(Pass):
    """Round every element of a quantised weight down or up, so that the results of its layer lose least.

    Given:  %y = Conv(%x, %w) in int8, with weights 0.4 and 0.4 in steps of 1 for two inputs that are always equal
    Result: the weights 0 and 1 instead of 0 and 0: their sum, 0.8, is what the results depend on

    A layer is seen with the inputs that it has in the quantised model, after the layers before it were rounded, and its
    results are compared with those of the float model. 4096 rows of inputs are sampled, fewer where rows are long; one
    sample of four is held back, and a layer keeps its new weights only if the error falls by two percent on those, too.
    Quantised inputs often cost more than weights, and then no rounding helps. If biases are going to be corrected, the
    mean of the error does not count.
    """

    name = "round-weights"
    stage = "calibrate"
    requires = ("calibrate",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Replace weights by ones that integers hold exactly.

        Raises:
            DovetailError: There is no data, it holds numbers that are not finite, or a replayed plan has not what it
                needs.
        """
        if ctx.refusals.fresh or not ctx.outcome.holdings or not wanted(ctx, ROUNDING):
            return False
        from dovetail_quantize.refining.constants import Constants
        from dovetail_quantize.refining.layer_rounding import RoundedWeights, Rounding
        from dovetail_quantize.refining.layers import refined_layers
        from dovetail_quantize.refining.layerwise import walk
        from dovetail_quantize.refining.record import Record
        from dovetail_quantize.refining.twin import HeldConstants

        record = Record.of(ctx)
        layers = refined_layers(model.graph, ROUNDING, record.steps)
        before = {layer: layer.weight.const_value for layer in layers}
        weights = RoundedWeights(Constants(model, ctx), HeldConstants(model, ctx), record)
        if record.replayed:
            for layer in layers:
                weights.replay(layer, ctx)
        elif layers:
            needs_data(ctx, ROUNDING)
            walk(model, ctx, layers, lambda layer, beside: Rounding(layer, beside, weights, ctx), "round weights")
        changed = sum(layer.weight.const_value is not before[layer] for layer in layers)
        ctx.count("rounded", changed)
        record.count(ROUNDING, changed)
        if changed:
            model.touch()
        return bool(changed)
