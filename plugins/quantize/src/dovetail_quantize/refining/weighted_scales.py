"""The `weigh-scales` pass: scales of blocks of weights for the errors of products, not of weights.

Source: the importance matrix of Kawrakow in llama.cpp, 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import name_of
from dovetail.passes import Pass
from dovetail.planning import placement_of

from dovetail_quantize.blocks import ENERGY
from dovetail_quantize.refining.block_products import block_products
from dovetail_quantize.refining.steps import FEEDBACK, SCALES, needs_data, wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.block_products import BlockProduct


class WeighScales(Pass):
    """Weight squared errors of weights in blocks by the energy of the channels that they are multiplied with.

    Given:  %y = MatMul(%x, %w), %w in int4 with a scale per block, and channel 3 of %x is ten times as loud as others
    Result: the scale of a block is the one with the least error of %y, if channels do not correlate: errors of row 3 of
            %w count a hundred times

    Scales are found when a weight is written; this measures the energies alone. The plan keeps them, so that a replay
    needs no data.
    """

    name = "weigh-scales"
    stage = "calibrate"
    requires = ("calibrate",)
    after = ("smooth",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Measure the energies, and note them at the weights.

        Raises:
            DovetailError: Data is missing or does not fit, or a replayed plan has not what it needs.
        """
        if ctx.refusals.fresh or not wanted(ctx, SCALES):
            return False
        from dovetail_quantize.channel_energies import energies_of
        from dovetail_quantize.refining.record import RefinementRecord

        record = RefinementRecord.of(ctx)
        fed_back = {name for name, steps in record.steps.items() if FEEDBACK in steps}  # which weighs errors, too
        read = block_products(model, SCALES, record.steps, ctx)
        read = {value: products for value, products in read.items() if _backend(products) not in fed_back}
        if not record.replayed and read:
            needs_data(ctx, SCALES)
            energies = energies_of(model, read, ctx)
        else:
            shapes = {value: (products[0].channels,) for value, products in read.items()}
            saved = {value: record.saved(SCALES, name_of(value), shape) for value, shape in shapes.items()}
            energies = {value: array for value, array in saved.items() if array is not None}
        for value, energy in energies.items():
            kept = record.save(SCALES, name_of(value), energy.astype(np.float32))
            for product in read[value]:
                product.weight.meta[ENERGY] = kept
                loud = f"the loudest of {len(kept)} channels has {kept.max():.3g} of the mean energy"
                ctx.remark("passed", product.node, "scales", f"errors of its weight count by what it reads: {loud}")
        number = sum(len(read[value]) for value in energies)
        ctx.count("weighed", number)
        record.count(SCALES, number)
        return bool(number)


def _backend(products: Sequence[BlockProduct]) -> str:
    return placement_of(products[0].node).backend
