"""The `smooth` pass: move outliers of activations into weights.

Source: Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import FLOAT32, constant_of, input_of, name_of
from dovetail.planning import placement_of

from dovetail_quantize.integers import parameters_of_range
from dovetail_quantize.observing import observe
from dovetail_quantize.refining.absorbers import Absorber, absorber_of
from dovetail_quantize.refining.activation_aware import (
    activation_aware_factors,
    error_of_product,
    normalized_factors,
    rounded,
)
from dovetail_quantize.refining.layers import ConstantReplacer, Layer, refined_layers
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.samples import RowSample, decibels
from dovetail_quantize.refining.steps import SMOOTH, needs_data

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context


def smooth_model(model: Model, ctx: Context, alpha: float) -> bool:
    """Smooth the inputs of a model's layers; return whether any was."""
    record = RefinementRecord.of(ctx)
    inputs = smoothed_inputs(model, record, ctx)
    if not inputs:
        return False
    constants = ConstantReplacer(model, ctx)
    if record.replayed:
        factors = {one: record.saved(SMOOTH, name_of(one.value), (one.channels,)) for one in inputs}
    else:
        needs_data(ctx, SMOOTH)
        seen = {name_of(one.value): [SeenInput(one)] for one in inputs}
        observe(model, seen, ctx)
        factors = {one: seen[name_of(one.value)][0].factors(alpha, ctx) for one in inputs}
    changed = 0
    for one, by in factors.items():
        if by is None:
            continue
        by = record.save(SMOOTH, name_of(one.value), by)
        one.absorber.scale(constants, 1 / by.astype(float))
        for layer in one.layers:
            constants.scale(layer, None, by.astype(float))
        changed += 1
    if changed:
        model.touch()
    ctx.count("smoothed", changed)
    record.count(SMOOTH, changed)
    return bool(changed)


_ROWS = 512
_WORTH = 0.98  # largest remaining fraction of the error
_ACTIVATION, _WEIGHT = "A", "B"


@dataclass(frozen=True, eq=False)
class SmoothedInput:
    """A value that only quantized products read; its format is float32 where weights alone are in integers."""

    value: ir.Value
    format: Format
    layers: tuple[Layer, ...]
    absorber: Absorber

    @property
    def channels(self) -> int:
        """Number of channels."""
        return self.layers[0].layout.extents[2]


def smoothed_inputs(model: Model, record: RefinementRecord, ctx: Context) -> list[SmoothedInput]:
    """Find all values whose channels can be scaled."""
    readers: dict[ir.Value, list[Layer]] = {}
    for layer in refined_layers(model.graph, SMOOTH, record.steps):
        if not layer.is_convolution and _read_format(layer) is not None:
            readers.setdefault(input_of(layer.node, 0), []).append(layer)
    found = []
    for value, layers in readers.items():
        formats = {format_ for layer in layers if (format_ := _read_format(layer)) is not None}
        alone = len(value.uses()) == len(layers) and not value.is_graph_output() and len(formats) == 1
        absorber = absorber_of(value, layers[0].layout.extents[2]) if alone else None
        if absorber is None:
            what = "no constant in front of it takes up a scale" if alone else "others read it, too"
            why = f"the channels of '{value.name}' stay as they are: {what}"
            ctx.remark("missed", layers[0].node, "smooth", why)
        else:
            found.append(SmoothedInput(value, formats.pop(), tuple(layers), absorber))
    return found


def _read_format(layer: Layer) -> Format | None:
    """Return the format that a product reads: integers with one scale, or float32 beside a weight in integers."""
    read = placement_of(layer.node).port_format(_ACTIVATION)
    if read is None or read.quantized:
        return _format(layer, _ACTIVATION)
    return FLOAT32 if _format(layer, _WEIGHT) is not None else None


def _format(layer: Layer, port: str) -> Format | None:
    """Return the quantized format of a port, if it is per-tensor or the port is the weight."""
    format_ = placement_of(layer.node).port_format(port)
    usable = format_ is not None and format_.quantized and (port == _WEIGHT or format_.axis is None)
    return format_ if usable else None


class _Part:
    """A part of the calibration data of a value: the extrema of its channels, and a sample of its rows."""

    def __init__(self, channels: int, seed: int):
        self.low, self.high = np.full(channels, np.inf), np.full(channels, -np.inf)
        self._sample = RowSample(_ROWS // 2, seed)

    def update(self, rows: np.ndarray) -> None:
        self.low, self.high = np.minimum(self.low, rows.min(axis=0)), np.maximum(self.high, rows.max(axis=0))
        self._sample.offer(len(rows), lambda at: (rows[at],))

    @property
    def rows(self) -> np.ndarray:
        return self._sample.rows[0] if self._sample.rows else np.zeros((0, len(self.low)), np.float32)


class SeenInput:
    """Calibration data of one value, in two parts that take turns: factors of one are judged on the other.

    Scaled channels have less room for larger numbers than the data has, so what they gain on the same data says little.
    """

    extrema = None

    def __init__(self, of: SmoothedInput):
        self._of, self.format = of, of.format
        self._parts = [_Part(of.channels, seed) for seed in (0, 1)]
        self._batches = 0

    def update(self, array: np.ndarray) -> None:
        """Process the numbers of one batch."""
        rows = array.reshape(-1, self._of.channels)
        if not rows.size:
            return
        if not np.isfinite(rows).all():
            raise DovetailError(
                f"value '{self._of.value.name}': a number on the data is infinite or NaN",
                "look at the data; channels are scaled by what is seen on it",
            )
        self._parts[self._batches % 2].update(rows)
        self._batches += 1

    def factors(self, alpha: float, ctx: Context) -> np.ndarray | None:
        """Return the factors of the weights; None if scaling gains nothing."""
        if not self._batches:
            return None
        if not self._of.format.quantized:
            return self._weight_factors(ctx)
        first, second = self._parts
        pairs = ((first, second), (second, first)) if self._batches > 1 else ((first, first),)
        signal = before = after = 0.0
        for fitted, judged in pairs:
            by = self._factors_of(fitted.low, fitted.high, alpha)
            energy, plain = self._error(np.ones_like(by), fitted, judged)
            signal, before, after = signal + energy, before + plain, after + self._error(by, fitted, judged)[1]
        by = self._factors_of(np.minimum(first.low, second.low), np.maximum(first.high, second.high), alpha)
        return self._worthwhile(by, signal, before, after, ctx)

    def _factors_of(self, low: np.ndarray, high: np.ndarray, alpha: float) -> np.ndarray:
        weights = [layer.layout.matrices(_array(layer))[0, :, :, 0] for layer in self._of.layers]
        activations = np.maximum(np.abs(low), np.abs(high))
        largest = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            by = activations**alpha / largest ** (1 - alpha)
        return normalized_factors(by)

    def _weight_factors(self, ctx: Context) -> np.ndarray | None:
        """Return the factors of weights that alone are in integers; None if scaling gains nothing."""
        weights = [(_array(layer), format_) for layer in self._of.layers if (format_ := _format(layer, _WEIGHT))]
        found = activation_aware_factors(np.concatenate([part.rows for part in self._parts]), weights)
        return self._worthwhile(*found, ctx)

    def _worthwhile(
        self, by: np.ndarray, signal: float, before: float, after: float, ctx: Context
    ) -> np.ndarray | None:
        """Return factors if they take away enough of the error, and remark on them."""
        of = self._of
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

    def _error(self, by: np.ndarray, fitted: _Part, judged: _Part) -> tuple[float, float]:
        """Return the energy of some results of all products, and of their error, with channels divided by factors.

        Args:
            by: The factors.
            fitted: Has the range of the activations.
            judged: Has the rows of the products.
        """
        parameters = parameters_of_range(self.format, (fitted.low / by).min(), (fitted.high / by).max())
        given, signal, error = rounded(judged.rows / by, self.format, parameters), 0.0, 0.0
        for layer in self._of.layers:
            format_ = _format(layer, _WEIGHT)
            assert format_ is not None, "refined layers have quantized weights"
            results = int(layer.layout.inputs_first)
            energy, lost = error_of_product(judged.rows, given, _array(layer), results, format_, by)
            signal, error = signal + energy, error + lost
        return signal, error


def _array(layer: Layer) -> np.ndarray:
    return constant_of(layer.weight).numpy()
