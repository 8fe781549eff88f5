"""The `weigh-scales` pass: scales of blocks of weights for the errors of products, not of weights.

Source: the importance matrix of Kawrakow in llama.cpp, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import input_of, name_of
from dovetail.passes import Pass
from dovetail.planning import get_placement, placement_of

from dovetail_quantize.blocks import ENERGY
from dovetail_quantize.refining.layers import layer_of, refined_layers
from dovetail_quantize.refining.steps import READING_SCALES, SCALES, needs_data, wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

_WEIGHT, _TABLE = "B", "data"


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
        from dovetail_quantize.refining.record import Record

        record = Record.of(ctx)
        read: dict[ir.Value, list[tuple[ir.Node, ir.Value]]] = {}
        found = [(layer.node, layer.weight) for layer in refined_layers(model.graph, SCALES, record.steps)]
        found = [(node, weight) for node, weight in found if _in_blocks(node)]
        for node, weight in (*found, *_tied(model, record.steps)):
            if set(READING_SCALES).intersection(record.steps[placement_of(node).backend]):
                why = "scales of its weight are found before, because other refinements read them"
                ctx.remark("missed", node, "scales", why)
                continue
            read.setdefault(input_of(node, 0), []).append((node, weight))
        if not record.replayed and read:
            needs_data(ctx, SCALES)
            energies = energies_of(model, read, ctx)
        else:
            shapes = {value: (_channels(*readers[0]),) for value, readers in read.items()}
            saved = {value: record.saved(SCALES, name_of(value), shape) for value, shape in shapes.items()}
            energies = {value: array for value, array in saved.items() if array is not None}
        for value, energy in energies.items():
            kept = record.save(SCALES, name_of(value), energy.astype(np.float32))
            for node, weight in read[value]:
                weight.meta[ENERGY] = kept
                loud = f"the loudest of {len(kept)} channels has {kept.max():.3g} of the mean energy"
                ctx.remark("passed", node, "scales", f"errors of its weight count by what it reads: {loud}")
        number = sum(len(read[value]) for value in energies)
        ctx.count("weighed", number)
        record.count(SCALES, number)
        return bool(number)


def _in_blocks(node: ir.Node) -> bool:
    """Check whether the weight of a product has a scale per block along the channels that it reads."""
    format_ = placement_of(node).port_format(_WEIGHT)
    return "Conv" not in node.op_type and format_ is not None and format_.group is not None


def _tied(model: Model, steps: Mapping[str, Sequence[str]]) -> list[tuple[ir.Node, ir.Value]]:
    """Return heads that read an embedding, through a Transpose, in blocks along the channels of its rows."""
    found = []
    for node in model.graph:
        transpose = input_of(node, 1).producer() if node.op_type == "MatMul" and len(node.inputs) > 1 else None
        placement = get_placement(transpose) if transpose is not None and transpose.op_type == "Transpose" else None
        if transpose is None or placement is None or SCALES not in steps.get(placement.backend, ()):
            continue
        table, format_ = input_of(transpose, 0), placement.port_format(_TABLE)
        if table.is_initializer() and format_ is not None and format_.group is not None and format_.axis == 1:
            found.append((node, table))
    return found


def _channels(node: ir.Node, weight: ir.Value) -> int:
    """Return how many channels a product reads."""
    assert weight.shape is not None, "a weight has a shape"
    layer = layer_of(node)
    return weight.shape.numpy()[1] if layer is None else layer.layout.extents[2]
