"""The `smooth` pass: outliers of activations move into weights (Xiao et al., "SmoothQuant: Accurate and Efficient
Post-Training Quantization for Large Language Models", 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of
from dovetail.passes import Pass

from dovetail_quantize.refining.steps import SMOOTH, needs_data, wanted

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class Smooth(Pass):
    """Make the channels that quantised products read more alike, and their weights less.

    Given:  %x = LayerNormalization(%h, %scale, %bias)   %q = MatMul(%x, %w1)   %k = MatMul(%x, %w2)
    Result: %x = LayerNormalization(%h, %scale / s, %bias / s)   %q = MatMul(%x, s * %w1)   %k = MatMul(%x, s * %w2)

    There is one s per channel: its largest activation on the data to the power of alpha, over its largest weight to the
    power of 1 - alpha. It needs constants in front of %x that take it up: those of a normalisation, written out or not,
    a Mul by a constant, or the product before. A value keeps its channels unless the error of its products on a sample
    of rows falls by two percent. The model computes the same function.

    Options:
        alpha: How much of the differences moves into the weights, from 0 to 1.
    """

    name = "smooth"
    stage = "calibrate"
    after = ("equalise",)
    before = ("calibrate",)

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is {self.alpha}, and lies between 0 and 1")

    def run(self, model: Model, ctx: Context) -> bool:
        """Scale constants and weights.

        Raises:
            DovetailError: There is no data, or it holds numbers that are not finite.
        """
        if not wanted(ctx, SMOOTH):
            return False
        from dovetail_quantize.observing import observe
        from dovetail_quantize.refining.constants import Constants
        from dovetail_quantize.refining.migration import SeenInput, smoothed_inputs
        from dovetail_quantize.refining.record import Record

        record = Record.of(ctx)
        inputs = smoothed_inputs(model, record, ctx)
        if not inputs:
            return False
        constants = Constants(model, ctx)
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
