"""The `correct-biases` pass: bias correction on data (Nagel et al., "Data-Free Quantization Through Weight Equalization
and Bias Correction", 2019, section 4.2 and appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of
from dovetail.passes import Pass

from dovetail_quantize.refining.steps import BIAS, needs_data, wanted

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.constants import Constants
    from dovetail_quantize.refining.layers import Layer
    from dovetail_quantize.refining.record import Record


@dataclass(frozen=True)
class CorrectBiases(Pass):
    """Add to biases what quantisation takes away on average.

    Given:  %y = Conv(%x, %w, %b) in int8, whose channel 3 is 0.02 too large on average over the data
    Result: %y = Conv(%x, %w, %b'), where element 3 of %b' is 0.02 smaller

    The mean is that of the float output less the output with quantised weights and inputs, per channel. Layers are
    corrected from the first to the last, so each sees the corrections before it. A mean m that the data leaves
    uncertain is taken in part, by 1 - c v / m^2, where v is the variance of a mean over n samples and c = 1 + 8 / (n -
    1), and not at all where that is negative.

    MatMul has no bias; the constant that is added to its result serves, and where there is none, a remark says so.
    """

    name = "correct-biases"
    stage = "calibrate"
    requires = ("calibrate", "reserve-biases")
    after = ("round-weights",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Change biases.

        Raises:
            DovetailError: There is no data, it holds numbers that are not finite, or a replayed plan has not what it
                needs.
        """
        if ctx.refusals.fresh or not wanted(ctx, BIAS):
            return False
        from dovetail_quantize.refining.constants import Constants
        from dovetail_quantize.refining.layerwise import walk
        from dovetail_quantize.refining.mean_error import MeanError
        from dovetail_quantize.refining.record import Record
        from dovetail_quantize.refining.reserve import drop_reserved
        from dovetail_quantize.refining.twin import HeldConstants

        record, constants = Record.of(ctx), Constants(model, ctx)
        layers = _layers(model, record, ctx) if ctx.outcome.holdings else []
        before = [(layer, bias, bias.const_value) for layer in layers if (bias := layer.bias) is not None]
        if record.replayed:
            _replay(layers, record, constants, ctx)
        elif layers:
            needs_data(ctx, BIAS)
            held = HeldConstants(model, ctx)
            walk(model, ctx, layers, lambda layer, _: MeanError(layer, held, constants, record, ctx), "correct biases")
        changed = [layer for layer, bias, tensor in before if bias.const_value is not tensor]
        ctx.count("corrected", len(changed))
        record.count(BIAS, len(changed))
        dropped = drop_reserved(model, constants, ctx, [layer.node for layer in changed])
        if changed:
            model.touch()
        return bool(changed) or dropped


def _layers(model: Model, record: Record, ctx: Context) -> list[Layer]:
    """The layers with a bias that can be corrected; the others get a remark."""
    from dovetail_quantize.refining.layers import refined_layers

    found = []
    for layer in refined_layers(model.graph, BIAS, record.steps):
        if layer.bias is not None:
            found.append(layer)
        else:
            ctx.remark("missed", layer.node, "bias", "it has no bias to correct, and nothing adds a constant to it")
    return found


def _replay(layers: list[Layer], record: Record, constants: Constants, ctx: Context) -> None:
    for layer in layers:
        found = record.saved(BIAS, name_of(layer.output), (layer.channels,))
        if found is not None and layer.bias is not None:
            record.save(BIAS, name_of(layer.output), found)
            constants.add(layer.bias, found)
            ctx.remark("passed", layer.node, "bias", "its bias is corrected as in the replayed plan")
