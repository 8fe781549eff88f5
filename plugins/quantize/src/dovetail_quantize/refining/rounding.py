"""The `round-weights` pass: round weights to minimize the error of the layer's output, not of each weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import constant_of, input_of, name_of
from dovetail.planning import placement_of

from dovetail_quantize.integers import integer_bounds, parameters_of, shaped
from dovetail_quantize.refining.descent import choose
from dovetail_quantize.refining.layers import ConstantReplacer, RefinedTensor, float_tensor, refined_layers
from dovetail_quantize.refining.layerwise import walk
from dovetail_quantize.refining.quantized_model import QuantizedConstants
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.samples import RowSample, decibels, inputs_at, outputs_at, positions_of
from dovetail_quantize.refining.steps import BIAS, ROUNDING, needs_data

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import QuantizedValue

    from dovetail_quantize.refining.layers import Layer
    from dovetail_quantize.refining.quantized_model import QuantizedModel


def round_weights(model: Model, ctx: Context) -> bool:
    """Round the weights of a model's layers; return whether any changed."""
    record = RefinementRecord.of(ctx)
    layers = refined_layers(model.graph, ROUNDING, record.steps)
    before = {layer: layer.weight.const_value for layer in layers}
    weights = RoundedWeights(ConstantReplacer(model, ctx), QuantizedConstants(model, ctx), record)
    if record.replayed:
        for layer in layers:
            weights.replay(layer, ctx)
    elif layers:
        needs_data(ctx, ROUNDING)
        walk(model, ctx, layers, lambda layer, refiners: Rounding(layer, refiners, weights, ctx), "round weights")
    changed = sum(layer.weight.const_value is not before[layer] for layer in layers)
    ctx.count("rounded", changed)
    record.count(ROUNDING, changed)
    if changed:
        model.touch()
    return bool(changed)


class Levels:
    """A weight on its integer grid.

    Args:
        weight: The weight in floats.
        quantized: Its format and parameters.

    Attributes:
        down: The weight rounded down, clipped to the format.
        up: The next larger integers, clipped to the format.
    """

    def __init__(self, weight: np.ndarray, quantized: QuantizedValue):
        self._scale, self._zero = (shaped(part, quantized.format, weight.shape) for part in parameters_of(quantized))
        self._scale = self._scale.astype(np.float32)
        self._exact = weight.astype(np.float32) / self._scale + self._zero
        self._bounds = smallest, largest = integer_bounds(quantized.format)
        self._dtype = np.min_scalar_type(smallest) if smallest < 0 else np.min_scalar_type(largest)
        self.down = np.clip(np.floor(self._exact), smallest, largest)
        self.up = np.minimum(self.down + 1, largest)

    @property
    def real(self) -> Callable[[np.ndarray], np.ndarray]:
        """Function from integers to real numbers that does not keep the weight in memory."""
        scale, zero = self._scale, self._zero
        return lambda levels: (levels - zero).astype(np.float32) * scale

    def stored(self, levels: np.ndarray) -> np.ndarray:
        """Cast integers to the smallest type that holds the whole format."""
        return levels.astype(self._dtype)

    def off(self, levels: np.ndarray) -> np.ndarray:
        """Return the weight error of given integers."""
        return (levels - self._exact).astype(np.float32) * self._scale

    def fit(self, levels: np.ndarray) -> bool:
        """Check whether integers are those of this weight, each rounded down or up.

        The tolerance of a hundredth of a step covers weights that were scaled on another machine.
        """
        return bool((np.abs(levels - np.clip(self._exact, *self._bounds)) <= 1.01).all())


_ROWS, _FEWEST_ROWS = 4096, 256
_NUMBERS = 1 << 24  # numbers in the sampled rows of a block's layers
_HELD_BACK = 4  # one sample in this many
_WORTH = 0.98  # largest remaining error fraction; a smaller gain is noise, and every changed weight adds error


class RoundedWeights:
    """Replaces the weights of layers by rounded ones."""

    def __init__(self, constants: ConstantReplacer, quantized: QuantizedConstants, record: RefinementRecord):
        self._constants, self._quantized, self.record = constants, quantized, record

    def levels(self, layer: Layer) -> Levels:
        """Return the integer grid of a layer's weight."""
        quantized = self._quantized.at(*layer.weight_at)
        assert quantized is not None, "only quantized layers are rounded"
        return Levels(constant_of(layer.weight).numpy(), quantized)

    def put(self, layer: Layer, grid: Levels, levels: np.ndarray) -> None:
        """Replace a weight by the numbers that given integers represent."""
        kept = self.record.save(ROUNDING, name_of(layer.output), grid.stored(levels))
        self._constants.put(layer.weight, RefinedTensor(kept, grid.real, constant_of(layer.weight)))

    def put_in_quantized_model(self, layer: Layer, quantized_model: QuantizedModel) -> None:
        """Copy the current weight of a layer to the quantized model."""
        quantized_model.put(*layer.weight_at, constant_of(layer.weight), self._quantized.at(*layer.weight_at))

    def shift_in_quantized_model(self, layer: Layer, quantized_model: QuantizedModel, by: np.ndarray) -> None:
        """Add to the bias of a layer in the quantized model."""
        at = layer.bias_at
        assert at is not None, "only layers with a bias are centered"
        bias = input_of(*at)
        array = constant_of(bias).numpy()
        quantized_model.put(*at, float_tensor(array + by.reshape(array.shape), bias.name), self._quantized.at(*at))

    def replay(self, layer: Layer, ctx: Context) -> None:
        """Round a weight as recorded in the replayed plan.

        Raises:
            DovetailError: The plan was made for another weight.
        """
        found = self.record.saved(ROUNDING, name_of(layer.output), layer.layout.shape)
        if found is None:
            return
        grid = self.levels(layer)
        if not grid.fit(found):
            raise DovetailError(
                f"plan: the integers of weight '{layer.weight.name}' are not those of this model's weight rounded",
                "replay the plan on the model that it was made for, or compile without --plan and give --data",
            )
        self.put(layer, grid, found)
        ctx.remark("passed", layer.node, "rounding", "its weight is rounded as in the replayed plan")


class Rounding:
    """Refiner that rounds the weight of one layer."""

    def __init__(self, layer: Layer, refiners: int, weights: RoundedWeights, ctx: Context):
        groups, _, inputs = layer.layout.extents
        self._inputs = inputs * math.prod(layer.layout.shape[2:])
        self._layer, self._weights, self._ctx = layer, weights, ctx
        steps = weights.record.steps.get(placement_of(layer.node).backend, ())
        self._centered = BIAS in steps and layer.bias is not None
        size = min(_ROWS, max(_FEWEST_ROWS, _NUMBERS // (refiners * groups * self._inputs)))
        self._used, self._quantized_back = RowSample(size, 0), RowSample(size // _HELD_BACK, 1)
        self._samples = 0

    @property
    def shift(self) -> None:
        """None: a rounded weight changes more than a mean."""

    def see(self, inputs: np.ndarray, computed: np.ndarray, wanted: np.ndarray) -> None:
        """Sample rows of one batch; see `Refiner`."""
        samples = wanted.shape[0] if wanted.ndim > 1 else 1
        number = positions_of(self._layer, wanted)
        if not number:
            return
        of_sample = self._samples + np.arange(number) // max(1, number // samples)
        self._samples += samples
        held_back = of_sample % _HELD_BACK == _HELD_BACK - 1
        for sample, part in (
            (self._used, np.flatnonzero(~held_back)),
            (self._quantized_back, np.flatnonzero(held_back)),
        ):
            sample.offer(len(part), partial(self._rows, inputs, wanted, part))

    def refine(self, quantized_model: QuantizedModel) -> bool:
        """Replace the weight if the rounded one is better on the held-out rows."""
        if len(self._used) + len(self._quantized_back) < 2:
            return False
        used, held_back = self._split()
        grid = self._weights.levels(self._layer)
        down, up = self._matrices(grid.off(grid.down)), self._matrices(grid.off(grid.up))
        nearest = np.where(np.abs(up) < np.abs(down), up, down)
        rows, missing = self._lacking(*used)
        shift = missing.mean(axis=1, keepdims=True) if self._centered else np.zeros((), np.float32)
        middle = rows.mean(axis=2, keepdims=True) if self._centered else np.zeros((), np.float32)
        chosen = choose(rows - middle, missing - shift, down, up)
        off = np.where(chosen, up, down)

        def left(of: tuple[np.ndarray, np.ndarray], off: np.ndarray) -> float:
            return float((((of[1] - shift) - (of[0] - middle).swapaxes(1, 2) @ off).astype(np.float64) ** 2).sum())

        check, signal = self._lacking(*held_back), float((held_back[1].astype(np.float64) ** 2).sum())
        before, after = left(check, nearest), left(check, off)
        better = after < _WORTH * before and left((rows, missing), off) < left((rows, missing), nearest)
        if better:
            levels = np.where(self._weight(chosen), grid.up, grid.down)
            self._weights.put(self._layer, grid, levels)
            self._weights.put_in_quantized_model(self._layer, quantized_model)
            share = float((off != nearest).mean())
            why = (
                f"{share:.1%} of its weights are not rounded to the nearest integer: SNR of its results "
                f"{decibels(signal, before):.1f} to {decibels(signal, after):.1f} dB on samples held back"
            )
            self._ctx.remark("passed", self._layer.node, "rounding", why)
        else:
            why = "its weights are rounded to the nearest integers: no other way gains two percent on samples held back"
            self._ctx.remark("analysis", self._layer.node, "rounding", why)
        if self._centered:
            # Later layers must see the output with the corrected bias.
            by = shift - middle.swapaxes(1, 2) @ (off if better else nearest)
            self._weights.shift_in_quantized_model(self._layer, quantized_model, by)
        return better or self._centered

    def _rows(
        self, inputs: np.ndarray, wanted: np.ndarray, part: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        positions = part[at]
        rows = inputs_at(self._layer, inputs, wanted, positions), outputs_at(self._layer, wanted, positions)
        if not all(np.isfinite(part).all() for part in rows):
            raise DovetailError(
                f"node '{self._layer.node.name}': its inputs or results on the data are infinite or NaN",
                "look at the data; weights are rounded for it",
            )
        return rows

    def _split(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Return the rows to optimize on and the held-out rows; with a single sample, every fourth row is held out."""
        if len(self._used) and len(self._quantized_back):
            return self._used.rows, self._quantized_back.rows
        rows = self._used.rows or self._quantized_back.rows
        held_back = np.arange(len(rows[0])) % _HELD_BACK == 1
        return tuple(part[~held_back] for part in rows), tuple(part[held_back] for part in rows)

    def _lacking(self, inputs: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return input rows by group, and the output error that remains with the exact weight."""
        layer = self._layer
        rows = inputs.astype(np.float32).transpose(1, 2, 0)
        found = rows.swapaxes(1, 2) @ self._matrices(constant_of(layer.weight).numpy())
        if layer.bias is not None and layer.added_to is None:
            found = found + constant_of(layer.bias).numpy().reshape(found.shape[0], 1, -1)
        return rows, wanted.astype(np.float32).transpose(1, 0, 2) - found

    def _matrices(self, weight: np.ndarray) -> np.ndarray:
        """Reshape a weight to groups, inputs and outputs."""
        groups, outputs, _ = self._layer.layout.extents
        return np.ascontiguousarray(self._layer.layout.matrices(weight).reshape(groups, outputs, -1).swapaxes(1, 2))

    def _weight(self, matrices: np.ndarray) -> np.ndarray:
        """Reshape matrices back to the weight: the inverse of `_matrices`."""
        groups, outputs, inputs = self._layer.layout.extents
        return self._layer.layout.weight(matrices.swapaxes(1, 2).reshape(groups, outputs, inputs, -1))
