"""The `weigh-scales` pass: scales of blocks of weights for the errors of products, not of weights.

Source: the importance matrix of Kawrakow in llama.cpp, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import input_of, name_of
from dovetail.passes import Pass
from dovetail.planning import placement_of

from dovetail_quantize.blocks import ENERGY
from dovetail_quantize.refining.steps import READING_SCALES, SCALES, needs_data, wanted

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer

_WEIGHT = "B"


@dataclass(frozen=True)
class WeighScales(Pass):
    """Let squared errors of weights in blocks count by the energy of the channels that they are multiplied with.

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
        from dovetail_quantize.refining.layers import refined_layers
        from dovetail_quantize.refining.record import Record

        record = Record.of(ctx)
        read: dict[ir.Value, list[Layer]] = {}
        for layer in refined_layers(model.graph, SCALES, record.steps):
            if not _in_blocks(layer):
                continue
            if set(READING_SCALES).intersection(record.steps[placement_of(layer.node).backend]):
                why = "scales of its weight are found before, because other refinements read them"
                ctx.remark("missed", layer.node, "scales", why)
                continue
            read.setdefault(input_of(layer.node, 0), []).append(layer)
        if not record.replayed and read:
            needs_data(ctx, SCALES)
            energies = energies_of(model, read, ctx)
        else:
            shapes = {value: (readers[0].layout.extents[2],) for value, readers in read.items()}
            found = {value: record.saved(SCALES, name_of(value), shape) for value, shape in shapes.items()}
            energies = {value: array for value, array in found.items() if array is not None}
        for value, energy in energies.items():
            kept = record.save(SCALES, name_of(value), energy.astype(np.float32))
            for layer in read[value]:
                layer.weight.meta[ENERGY] = kept
                loud = f"the loudest of {len(kept)} channels has {kept.max():.3g} of the mean energy"
                ctx.remark("passed", layer.node, "scales", f"errors of its weight count by what it reads: {loud}")
        number = sum(len(read[value]) for value in energies)
        ctx.count("weighed", number)
        record.count(SCALES, number)
        return bool(number)


def _in_blocks(layer: Layer) -> bool:
    """Check whether the weight of a product has a scale per block along the channels that it reads."""
    format_ = placement_of(layer.node).port_format(_WEIGHT)
    return not layer.is_convolution and format_ is not None and format_.group is not None
