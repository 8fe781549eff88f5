"""Values that quantised products read, and the factors with which their channels lose less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir.required import constant_of, input_of
from dovetail.planning.placement import placement_of

from dovetail_quantize.integers import parameters_of_range, quantised, shaped
from dovetail_quantize.observers.minmax import MinMax
from dovetail_quantize.refining.absorbing import Absorber, absorber_of
from dovetail_quantize.refining.decibels import decibels
from dovetail_quantize.refining.layers import Layer, refined_layers
from dovetail_quantize.refining.record import Record
from dovetail_quantize.refining.sample import Sample
from dovetail_quantize.refining.steps import SMOOTH

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.holdings import Parameters


_ROWS = 512
_WORTH = 0.98  # of the error that may be left
_LARGEST_FACTOR = 2.0**10
_ACTIVATION, _WEIGHT = "A", "B"


@dataclass(frozen=True, eq=False)
class SmoothedInput:
    """A value that quantised products read, and nothing else does."""

    value: ir.Value
    format: Format
    layers: tuple[Layer, ...]
    absorber: Absorber

    @property
    def channels(self) -> int:
        """The number of its channels."""
        return self.layers[0].layout.extents[2]


def smoothed_inputs(model: Model, record: Record, ctx: Context) -> list[SmoothedInput]:
    """All values whose channels can be scaled."""
    readers: dict[ir.Value, list[Layer]] = {}
    for layer in refined_layers(model.graph, SMOOTH, record.steps):
        if not layer.is_convolution and _format(layer, _ACTIVATION) is not None:
            readers.setdefault(input_of(layer.node, 0), []).append(layer)
    found = []
    for value, layers in readers.items():
        formats = {format_ for layer in layers if (format_ := _format(layer, _ACTIVATION)) is not None}
        alone = len(value.uses()) == len(layers) and not value.is_graph_output() and len(formats) == 1
        absorber = absorber_of(value, layers[0].layout.extents[2]) if alone else None
        if absorber is None:
            what = "no constant in front of it takes up a scale" if alone else "others read it, too"
            why = f"the channels of '{value.name}' stay as they are: {what}"
            ctx.remark("missed", layers[0].node, "smooth", why)
        else:
            found.append(SmoothedInput(value, formats.pop(), tuple(layers), absorber))
    return found


def _format(layer: Layer, port: str) -> Format | None:
    """The quantised format of a port, if that has one scale, or the port is the weight."""
    format_ = placement_of(layer.node).port_format(port)
    usable = format_ is not None and format_.quantised and (port == _WEIGHT or format_.axis is None)
    return format_ if usable else None


class SeenInput:
    """What is seen of one value: the extrema of its channels, and a sample of its rows."""

    extrema = None

    def __init__(self, of: SmoothedInput):
        self._of, self.format = of, of.format
        self._low, self._high = np.full(of.channels, np.inf), np.full(of.channels, -np.inf)
        self._sample = Sample(_ROWS, 0)

    def update(self, array: np.ndarray) -> None:
        """See the numbers of one batch."""
        rows = array.reshape(-1, self._of.channels)
        if not rows.size:
            return
        low, high = rows.min(axis=0), rows.max(axis=0)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise DovetailError(
                f"value '{self._of.value.name}': a number on the data is infinite or NaN",
                "look at the data; channels are scaled by what is seen on it",
            )
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
        self._sample.offer(len(rows), lambda at: (rows[at],))

    def factors(self, alpha: float, ctx: Context) -> np.ndarray | None:
        """The factors of the weights; None if scaling gains nothing."""
        if not len(self._sample):
            return None
        of, weights = self._of, [layer.layout.matrices(_array(layer))[0, :, :, 0] for layer in self._of.layers]
        activations = np.maximum(np.abs(self._low), np.abs(self._high))
        largest = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            by = activations**alpha / largest ** (1 - alpha)
        by = np.where(np.isfinite(by) & (by > 0), by, 1.0)
        # Only ratios matter.
        by = np.clip(by / np.exp(np.log(by).mean()), 1 / _LARGEST_FACTOR, _LARGEST_FACTOR).astype(np.float32)
        signal, before = self._error(np.ones_like(by))
        _, after = self._error(by)
        node, others = of.layers[0].node, [layer.node for layer in of.layers[1:]]
        change = f"SNR of its products {decibels(signal, before):.1f} to {decibels(signal, after):.1f} dB"
        if after >= _WORTH * before:
            ctx.remark(
                "analysis", node, "smooth", f"the channels of '{of.value.name}' stay as they are: {change}", others
            )
            return None
        why = f"the channels of '{of.value.name}' are divided by {by.min():.3g} to {by.max():.3g}: {change}"
        ctx.remark("passed", node, "smooth", why, others)
        return by

    def _error(self, by: np.ndarray) -> tuple[float, float]:
        """The energy of all products on the sample, and that of their error, with channels divided by factors."""
        (rows,), signal, error = self._sample.rows, 0.0, 0.0
        parameters = parameters_of_range(self.format, (self._low / by).min(), (self._high / by).max())
        given = _rounded(rows / by, self.format, parameters)
        for layer in self._of.layers:
            weight = _array(layer)
            scaled = layer.layout.weight(layer.layout.matrices(weight) * by[:, None])
            format_ = _format(layer, _WEIGHT)
            assert format_ is not None, "refined layers have quantised weights"
            observer = MinMax(format_)
            observer.update(scaled)
            held = _rounded(scaled, format_, observer.parameters())
            exact = rows @ layer.layout.matrices(weight)[0, :, :, 0].T
            found = given @ layer.layout.matrices(held)[0, :, :, 0].T
            signal += float((exact.astype(np.float64) ** 2).sum())
            error += float(((exact - found).astype(np.float64) ** 2).sum())
        return signal, error


def _array(layer: Layer) -> np.ndarray:
    return constant_of(layer.weight).numpy()


def _rounded(array: np.ndarray, format_: Format, parameters: Parameters) -> np.ndarray:
    """The numbers that a format holds instead of those of an array."""
    scale, zero = (shaped(part, format_, array.shape) for part in parameters)
    integers = quantised(array, format_, parameters).astype(np.float32)
    return (integers - zero) * scale.astype(np.float32)
