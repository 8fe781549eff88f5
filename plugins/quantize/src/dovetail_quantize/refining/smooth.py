"""The `smooth` pass: move outliers of activations into weights.

Source: Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import FLOAT32, constant_of, input_of, is_onnx, name_of
from dovetail.passes import Pass
from dovetail.planning import placement_of

from dovetail_quantize.integers import parameters_of_range
from dovetail_quantize.observers.extremes import MinMax
from dovetail_quantize.refining.activation_aware import activation_aware_factors, normalized_factors, rounded
from dovetail_quantize.refining.equalize import only_reader
from dovetail_quantize.refining.layers import Layer, is_own, layer_of, refined_layers
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.samples import RowSample, decibels
from dovetail_quantize.refining.steps import SMOOTH, needs_data, wanted

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import ConstantReplacer


@dataclass(frozen=True)
class Smooth(Pass):
    """Even out the channels that quantized products read by moving outliers into the weights.

    Given:  %x = LayerNormalization(%h, %scale, %bias)   %q = MatMul(%x, %w1)   %k = MatMul(%x, %w2)
    Result: %x = LayerNormalization(%h, %scale / s, %bias / s)   %q = MatMul(%x, s * %w1)   %k = MatMul(%x, s * %w2)

    The factor s of a channel is its largest activation on the data to the power of alpha, over its largest weight to
    the power of 1 - alpha. Constants before %x must absorb it: those of a normalization (fused or decomposed), a Mul by
    a constant, or the preceding product. A value is scaled only if that reduces the error of its products on a sample
    of rows by two percent. The model computes the same function.

    Products that read floats and weights in integers are scaled by `activation_aware`.

    Options:
        alpha: Migration strength: how much of the range moves into the weights, from 0 to 1.
    """

    name = "smooth"
    stage = "calibrate"
    after = ("equalize",)
    before = ("calibrate",)

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is {self.alpha}, and lies between 0 and 1")

    def run(self, model: Model, ctx: Context) -> bool:
        """Scale constants and weights.

        Raises:
            DovetailError: Data is missing or holds nonfinite numbers.
        """
        if not wanted(ctx, SMOOTH):
            return False
        from dovetail_quantize.observing import observe
        from dovetail_quantize.refining.layers import ConstantReplacer
        from dovetail_quantize.refining.record import RefinementRecord

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
            factors = {one: seen[name_of(one.value)][0].factors(self.alpha, ctx) for one in inputs}
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


_KEPT = ("Relu", "LeakyRelu", "Identity", "Dropout")
_NORMS = ("LayerNormalization", "RMSNormalization")


@dataclass
class Absorber:
    """Constants and layers that absorb the scaling of a value.

    Attributes:
        vectors: Per-channel constants to multiply by the factors.
        inverse: Per-channel constants to divide by the factors.
        layers: Layers whose output channels to multiply by the factors.
    """

    vectors: list[ir.Value] = field(default_factory=list)
    inverse: list[ir.Value] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)

    def scale(self, constants: ConstantReplacer, factors: np.ndarray) -> None:
        """Multiply the channels of the value by factors."""
        for value in self.vectors:
            constants.scale_vector(value, factors)
        for value in self.inverse:
            constants.scale_vector(value, 1 / factors)
        for layer in self.layers:
            constants.scale(layer, factors, None)


def absorber_of(value: ir.Value, channels: int) -> Absorber | None:
    """Find constants that can absorb a scaling of a value's last axis; None if a producer does not commute with it.

    Every value on the way back must have a single reader, except `value` itself.
    """
    found = Absorber()
    while (node := value.producer()) is not None and is_onnx(node) and value is node.outputs[0]:
        if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
            return None
        if node.op_type in _NORMS:
            return found if _normalized(node, channels, found) else None
        layer = layer_of(node)
        if layer is not None and not layer.is_convolution and layer.channels == channels:
            # The walk has already passed a bias that a separate Add adds.
            found.layers.append(layer if layer.added_to is None else Layer(node, layer.layout))
            return found
        own = [index for index, given in enumerate(node.inputs[:2]) if _per_channel(given, channels)]
        if node.op_type in ("Mul", "Div") and own and (node.op_type == "Mul" or own == [1]):
            (found.vectors if node.op_type == "Mul" else found.inverse).append(input_of(node, own[0]))
            return found
        if node.op_type in ("Add", "Sub") and len(own) == 1:
            found.vectors.append(input_of(node, own[0]))
            value = input_of(node, 1 - own[0])
        elif node.op_type in _KEPT or _keeps_last_axis(node, channels):
            value = input_of(node, 0)
        else:
            return None
        if only_reader(value) is not node:
            return None
    return None


def _normalized(node: ir.Node, channels: int, found: Absorber) -> bool:
    """Check whether a normalization is along the last axis with per-channel constants, and collect these."""
    axis, rank = node.attributes.get_int("axis", -1), len(input_of(node, 0).shape or ())
    given = [value for value in node.inputs[1:3] if value is not None]
    if axis not in (-1, rank - 1) or not given or not all(_per_channel(value, channels) for value in given):
        return False
    found.vectors.extend(given)
    return True


def _per_channel(value: ir.Value | None, channels: int) -> bool:
    """Check whether a value is a per-channel constant along the last axis."""
    if not is_own(value):
        return False
    tensor = constant_of(value)
    return tensor.size == channels and tuple(tensor.shape)[-1:] == (channels,)


def _keeps_last_axis(node: ir.Node, channels: int) -> bool:
    """Check whether a node moves data but keeps the last axis."""
    before, after = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None, node.outputs[0].shape
    if before is None or after is None or not len(before) or not len(after):
        return False
    if node.op_type == "Reshape":
        return before[-1] == after[-1] == channels
    order = node.attributes.get_ints("perm", list(range(len(before)))[::-1])
    return node.op_type == "Transpose" and order[-1] == len(before) - 1


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


class SeenInput:
    """Calibration data of one value: the extrema of its channels, and a sample of its rows."""

    extrema = None

    def __init__(self, of: SmoothedInput):
        self._of, self.format = of, of.format
        self._low, self._high = np.full(of.channels, np.inf), np.full(of.channels, -np.inf)
        self._sample = RowSample(_ROWS, 0)

    def update(self, array: np.ndarray) -> None:
        """Process the numbers of one batch."""
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
        """Return the factors of the weights; None if scaling gains nothing."""
        if not len(self._sample):
            return None
        of, weights = self._of, [layer.layout.matrices(_array(layer))[0, :, :, 0] for layer in self._of.layers]
        if not of.format.quantized:
            return self._weight_factors(ctx)
        activations = np.maximum(np.abs(self._low), np.abs(self._high))
        largest = np.max([np.abs(weight).max(axis=0) for weight in weights], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            by = activations**alpha / largest ** (1 - alpha)
        by = normalized_factors(by)
        signal, before = self._error(np.ones_like(by))
        return self._worthwhile(by, signal, before, self._error(by)[1], ctx)

    def _weight_factors(self, ctx: Context) -> np.ndarray | None:
        """Return the factors of weights that alone are in integers; None if scaling gains nothing."""
        weights = [(_array(layer), format_) for layer in self._of.layers if (format_ := _format(layer, _WEIGHT))]
        found = activation_aware_factors(self._sample.rows[0], weights)
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

    def _error(self, by: np.ndarray) -> tuple[float, float]:
        """Return the energy of all products on the sample, and of their error, with channels divided by factors."""
        (rows,), signal, error = self._sample.rows, 0.0, 0.0
        parameters = parameters_of_range(self.format, (self._low / by).min(), (self._high / by).max())
        given = rounded(rows / by, self.format, parameters)
        for layer in self._of.layers:
            weight = _array(layer)
            scaled = layer.layout.weight(layer.layout.matrices(weight) * by[:, None])
            format_ = _format(layer, _WEIGHT)
            assert format_ is not None, "refined layers have quantized weights"
            observer = MinMax(format_)
            observer.update(scaled)
            held = rounded(scaled, format_, observer.parameters())
            exact = rows @ layer.layout.matrices(weight)[0, :, :, 0].T
            found = given @ layer.layout.matrices(held)[0, :, :, 0].T
            signal += float((exact.astype(np.float64) ** 2).sum())
            error += float(((exact - found).astype(np.float64) ** 2).sum())
        return signal, error


def _array(layer: Layer) -> np.ndarray:
    return constant_of(layer.weight).numpy()
