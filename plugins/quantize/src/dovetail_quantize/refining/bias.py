"""The `correct-biases` pass: bias correction on data (Nagel et al., "Data-Free Quantization Through Weight Equalization
and Bias Correction", 2019, section 4.2 and appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.passes import Pass

from dovetail_quantize.refining.constants import Constants
from dovetail_quantize.refining.decibels import decibels
from dovetail_quantize.refining.layers import Layer, refined_layers
from dovetail_quantize.refining.record import Record
from dovetail_quantize.refining.reserve import drop_reserved
from dovetail_quantize.refining.steps import BIAS
from dovetail_quantize.refining.twin import HeldConstants, QuantisedTwin
from dovetail_quantize.refining.walk import needs_data, walk

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["CorrectBiases"]

_CERTAIN = 2  # standard deviations


@dataclass(frozen=True)
class CorrectBiases(Pass):
    """Add to biases what quantisation takes away on average.

    Given:  %y = Conv(%x, %w, %b) in int8, whose channel 3 is 0.02 too large on average over the data
    Result: %y = Conv(%x, %w, %b'), where element 3 of %b' is 0.02 smaller

    The mean is that of the float output less the output with quantised weights and inputs, per channel. Layers are
    corrected from the first to the last, so each sees the corrections before it. A mean m that data of few samples
    leaves uncertain is taken in part, by 1 - 4 v / m^2, where v is its variance over samples, and not at all below two
    standard deviations.

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
        record = Record.of(ctx)
        constants = Constants(model, ctx)
        if ctx.refusals.fresh:
            return False  # the nodes are placed again first
        if not record.wants(BIAS) or not ctx.holdings:
            return drop_reserved(model, constants, ctx)
        layers = []
        for layer in refined_layers(model.graph, BIAS, record.steps):
            if layer.bias is not None:
                layers.append(layer)
            else:
                ctx.remark("missed", layer.node, "bias", "it has no bias to correct, and nothing adds a constant to it")
        before = {layer: layer.bias.const_value for layer in layers}
        if record.replayed:
            _replay(layers, record, constants, ctx)
        elif layers:
            needs_data(ctx, BIAS)
            held = HeldConstants(model, ctx)
            walk(model, ctx, layers, lambda layer, _: _Mean(layer, held, constants, record, ctx), "correct biases")
        changed = [layer for layer in layers if layer.bias.const_value is not before[layer]]
        ctx.count("corrected", len(changed))
        record.count(BIAS, len(changed))
        drop_reserved(model, constants, ctx, [layer.node for layer in changed])
        model.touch()
        return True


def _replay(layers: list[Layer], record: Record, constants: Constants, ctx: Context) -> None:
    for layer in layers:
        found = record.saved(BIAS, layer.output.name, (layer.channels,))
        if found is not None:
            record.save(BIAS, layer.output.name, found)
            constants.add(layer.bias, found)
            ctx.remark("passed", layer.node, "bias", "its bias is corrected as in the replayed plan")


class _Mean:
    """The mean error of a layer's channels over all samples."""

    def __init__(self, layer: Layer, held: HeldConstants, constants: Constants, record: Record, ctx: Context):
        self._layer, self._held, self._constants, self._record, self._ctx = layer, held, constants, record, ctx
        self._sum = np.zeros(layer.channels)
        self._means = np.zeros(layer.channels)  # of samples
        self._squares = np.zeros(layer.channels)  # of the means of samples
        self._samples = 0
        self._error = self._signal = 0.0
        self._numbers = 0

    def see(self, inputs: np.ndarray, computed: np.ndarray, wanted: np.ndarray) -> None:
        axis = 1 if self._layer.is_convolution else -1
        difference = np.moveaxis(wanted.astype(np.float64) - computed, axis, -1)
        samples = difference.reshape(difference.shape[0] if difference.ndim > 1 else 1, -1, difference.shape[-1])
        if not samples.size:
            return
        with np.errstate(invalid="ignore"):
            means = samples.mean(axis=1)
        if not np.isfinite(means).all():
            raise DovetailError(
                f"node '{self._layer.node.name}': its result on the data is infinite or NaN",
                "look at the data; biases are corrected by means over it",
            )
        self._sum += samples.sum(axis=(0, 1))
        self._means += means.sum(axis=0)
        self._squares += (means**2).sum(axis=0)
        self._samples += len(means)
        self._error += float((samples**2).sum())
        self._signal += float((wanted.astype(np.float64) ** 2).sum())
        self._numbers += samples.size // samples.shape[-1]

    def refine(self, twin: QuantisedTwin) -> bool:
        if not self._samples:
            return False
        mean = self._sum / self._numbers
        certain = np.ones_like(mean)
        if self._samples > 1:
            varies = self._squares / self._samples - (self._means / self._samples) ** 2
            spread = np.maximum(varies, 0) / (self._samples - 1)
            uncertain = np.divide(spread, mean**2, out=np.ones_like(mean), where=mean != 0)
            certain = np.maximum(0, 1 - _CERTAIN**2 * uncertain)
        correction = (mean * certain).astype(np.float32)
        layer = self._layer
        before, after = decibels(self._signal, self._error), decibels(self._signal, self._left(mean, correction))
        if not correction.any() or after <= before:
            return False
        correction = self._record.save(BIAS, layer.output.name, correction)
        self._constants.add(layer.bias, correction)
        node, index = layer.bias_at
        twin.put(node, index, layer.bias.const_value, self._held.at(node, index))
        why = f"its bias is corrected by up to {np.abs(correction).max():.3g}: SNR {before:.1f} to {after:.1f} dB"
        self._ctx.remark("passed", layer.node, "bias", why)
        return True

    def _left(self, mean: np.ndarray, correction: np.ndarray) -> float:
        """The squared error that a correction leaves."""
        return max(0.0, self._error + self._numbers * float((correction**2 - 2 * correction * mean).sum()))
