"""The `equalise` pass: cross-layer equalisation (Nagel et al., "Data-Free Quantization Through Weight Equalization and
Bias Correction", 2019, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass

from dovetail_quantize.refining.steps import EQUALISE, wanted

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class Equalise(Pass):
    """Give the channels between two quantised layers equal ranges in the weights of both.

    Given:  %1 = Conv(%x, %w1, %b1)   %2 = Relu(%1)   %3 = Conv(%2, %w2)
    Result: %1 = Conv(%x, %w1 / s, %b1 / s)   %2 = Relu(%1)   %3 = Conv(%2, %w2 * s)

    There is one s per channel, the one with which the largest weights that write and that read the channel are equal;
    chains of layers are swept until their factors change by less than one percent. The model computes the same
    function, as long as everything between the layers keeps channels apart and scales with them: Relu, LeakyRelu,
    PRelu, pooling, and movement of data.

    Options:
        everywhere: Equalise layers that the plan does not quantise, too, whatever the request says.
    """

    name = "equalise"
    stage = "calibrate"
    before = ("calibrate",)

    everywhere: bool = False

    def run(self, model: Model, ctx: Context) -> bool:
        """Scale weights and biases; they are computed when they are read.

        Raises:
            DovetailError: The request contradicts a replayed plan.
        """
        if not self.everywhere and not wanted(ctx, EQUALISE):
            return False
        from dovetail_quantize.refining.chains import equalise_layers
        from dovetail_quantize.refining.constants import Constants
        from dovetail_quantize.refining.layers import layers_of, refined_layers
        from dovetail_quantize.refining.record import Record

        record = Record.of(ctx)
        nodes = list(model.graph)
        found = layers_of(nodes) if self.everywhere else refined_layers(nodes, EQUALISE, record.steps)
        changed = equalise_layers(found, Constants(model, ctx), ctx)
        if changed:
            model.touch()
            ctx.count("equalised", changed)
            record.count(EQUALISE, changed)
        return bool(changed)
