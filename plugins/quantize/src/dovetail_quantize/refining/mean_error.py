"""The mean error of one layer over data, and its bias corrected by that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir.required import constant_of, input_of, name_of

from dovetail_quantize.refining.decibels import decibels
from dovetail_quantize.refining.steps import BIAS

if TYPE_CHECKING:
    from dovetail.passes import Context

    from dovetail_quantize.refining.constants import Constants
    from dovetail_quantize.refining.layers import Layer
    from dovetail_quantize.refining.record import Record
    from dovetail_quantize.refining.twin import HeldConstants, QuantisedTwin


_DOUBT = 8  # how much more a variance counts that is known from few samples


class MeanError:
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
        """See one batch; see `Refiner`."""
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
        """Correct the bias by what is certain of the mean."""
        if not self._samples:
            return False
        mean = self._sum / self._numbers
        certain = np.ones_like(mean)
        if self._samples > 1:
            varies = self._squares / self._samples - (self._means / self._samples) ** 2
            spread = np.maximum(varies, 0) / (self._samples - 1)
            uncertain = np.divide(spread, mean**2, out=np.ones_like(mean), where=mean != 0)
            certain = np.maximum(0, 1 - (1 + _DOUBT / (self._samples - 1)) * uncertain)
        correction = (mean * certain).astype(np.float32)
        layer = self._layer
        before, after = decibels(self._signal, self._error), decibels(self._signal, self._left(mean, correction))
        if not correction.any() or after <= before:
            return False
        correction = self._record.save(BIAS, name_of(layer.output), correction)
        at = layer.bias_at
        assert at is not None, "only layers with a bias are corrected"
        bias = input_of(*at)
        self._constants.add(bias, correction)
        twin.put(*at, constant_of(bias), self._held.at(*at))
        why = f"its bias is corrected by up to {np.abs(correction).max():.3g}: SNR {before:.1f} to {after:.1f} dB"
        self._ctx.remark("passed", layer.node, "bias", why)
        return True

    def _left(self, mean: np.ndarray, correction: np.ndarray) -> float:
        """The squared error that a correction leaves."""
        return max(0.0, self._error + self._numbers * float((correction**2 - 2 * correction * mean).sum()))
