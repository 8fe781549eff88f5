"""The `weigh-scales` pass: scales of blocks of weights for the errors of products, not of weights.

Source: the importance matrix of Kawrakow in llama.cpp, 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import name_of
from dovetail.planning import placement_of

from dovetail_quantize.blocks import ENERGY
from dovetail_quantize.channel_energies import energies_of
from dovetail_quantize.refining.block_products import block_products
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.steps import FEEDBACK, SCALES, needs_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.block_products import BlockProduct


def weigh_scales(model: Model, ctx: Context) -> bool:
    """Note the energies at weights whose scales are weighed; return whether there are any."""
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
            why = f"errors of its weight count by the energy of its input channels: {loud}"
            ctx.remark("passed", product.node, "scales", why)
    number = sum(len(read[value]) for value in energies)
    ctx.count("weighed", number)
    record.count(SCALES, number)
    return bool(number)


def _backend(products: Sequence[BlockProduct]) -> str:
    return placement_of(products[0].node).backend
