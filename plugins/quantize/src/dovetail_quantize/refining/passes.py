"""The passes of refinements: when each runs, and what it does. The work is imported only where a request wants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass

from dovetail_quantize.refining.steps import (
    BIAS,
    EQUALIZE,
    FEEDBACK,
    ROUNDING,
    SCALES,
    SMOOTH,
    left_out,
    steps_of,
    wanted,
)

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class Equalize(Pass):
    """Scale the channels between two quantized layers to equal ranges in both weights.

    Given:  %1 = Conv(%x, %w1, %b1)   %2 = Relu(%1)   %3 = Conv(%2, %w2)
    Result: %1 = Conv(%x, %w1 / s, %b1 / s)   %2 = Relu(%1)   %3 = Conv(%2, %w2 * s)

    The factor s of a channel makes the largest weight that writes it equal to the largest that reads it. Chains of
    layers are swept until the factors change by less than one percent. The model computes the same function, provided
    that every node between the layers is per-channel and commutes with positive scaling: Relu, LeakyRelu, PRelu,
    pooling, and data movement.

    Options:
        everywhere: Also equalize layers that the plan does not quantize, regardless of the request.
    """

    name = "equalize"
    stage = "calibrate"
    before = ("calibrate",)

    everywhere: bool = False

    def run(self, model: Model, ctx: Context) -> bool:
        """Scale weights and biases, as lazily computed constants.

        Raises:
            DovetailError: The request contradicts a replayed plan.
        """
        if not self.everywhere and not wanted(ctx, EQUALIZE):
            return False
        from dovetail_quantize.refining.equalize import equalize_model

        return equalize_model(model, ctx, self.everywhere)


@dataclass(frozen=True)
class Smooth(Pass):
    """Even out the channels that quantized products read by moving outliers into the weights.

    Given:  %x = LayerNormalization(%h, %scale, %bias)   %q = MatMul(%x, %w1)   %k = MatMul(%x, %w2)
    Result: %x = LayerNormalization(%h, %scale / s, %bias / s)   %q = MatMul(%x, s * %w1)   %k = MatMul(%x, s * %w2)

    The factor s of a channel is its largest activation on the data to the power of alpha, over its largest weight to
    the power of 1 - alpha. Constants before %x must absorb it: those of a normalization (fused or decomposed), a Mul by
    a constant, or the preceding product. A value is scaled only if that takes two percent from the error of its
    products, on rows of batches that its factors do not come from. The model computes the same function.

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
        from dovetail_quantize.refining.smooth import smooth_model

        return smooth_model(model, ctx, self.alpha)


class ReserveBiases(Pass):
    """Give layers without a bias one of zeros, if biases are going to be corrected.

    Given:  %y = Conv(%x, %w)
    Result: %y = Conv(%x, %w, %y_bias), with %y_bias = 0

    It is done before anything is decided, so that the bias gets a format like any other. `correct-biases` removes those
    that it does not change.
    """

    name = "reserve-biases"
    stage = "analyze"
    before = ("edge-kinds",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Add constants.

        Raises:
            DovetailError: The request contradicts a replayed plan.
        """
        if not wanted(ctx, BIAS):
            return False
        from dovetail_quantize.refining.biases import reserve_biases

        return reserve_biases(model, ctx)


class RoundWeights(Pass):
    """Round every element of a quantized weight down or up, to minimize the error of its layer's output.

    Given:  %y = Conv(%x, %w) in int8, with weights 0.4 and 0.4 in steps of 1 for two inputs that are always equal
    Result: the weights 0 and 1 instead of 0 and 0: the output depends only on their sum, 0.8

    A layer is evaluated on its inputs in the quantized model, after the layers before it were rounded, and its output
    is compared with that of the float model. 4096 rows of inputs are sampled, fewer if rows are long. One sample in
    four is held out, and a layer keeps its new weights only if the error falls by two percent on the held-out rows,
    too. If most of the error comes from quantized inputs, no rounding helps. The mean of the error is ignored if biases
    will be corrected.
    """

    name = "round-weights"
    stage = "calibrate"
    requires = ("calibrate",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Replace weights by numbers that integers represent exactly.

        Raises:
            DovetailError: Data is missing or holds nonfinite numbers, or a replayed plan lacks the rounded weights.
        """
        if ctx.refusals.fresh or not ctx.outcome.quantized_values or not wanted(ctx, ROUNDING):
            return False
        from dovetail_quantize.refining.rounding import round_weights

        return round_weights(model, ctx)


class CorrectBiases(Pass):
    """Add to biases the mean error that quantization causes.

    Given:  %y = Conv(%x, %w, %b) in int8, whose channel 3 is 0.02 too large on average over the data
    Result: %y = Conv(%x, %w, %b'), where element 3 of %b' is 0.02 smaller

    The mean is that of the float output less the output with quantized weights and inputs, per channel. Layers are
    corrected from the first to the last, so each sees the corrections before it. A mean m that the data leaves
    uncertain is taken in part, by 1 - c v / m^2, where v is the variance of a mean over n samples and c = 1 + 8 / (n -
    1), and not at all if that is negative.

    MatMul has no bias; the constant that is added to its result is used instead, and if there is none, a remark says
    so.
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
        from dovetail_quantize.refining.biases import correct_biases

        return correct_biases(model, ctx)


class WeighScales(Pass):
    """Weight squared errors of weights in blocks by the energy of the channels that they are multiplied with.

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
        from dovetail_quantize.refining.weighted_scales import weigh_scales

        return weigh_scales(model, ctx)


class FeedBackErrors(Pass):
    """Round the weights of products channel by channel, so that later ones compensate for the errors of earlier ones.

    Given:  %y = MatMul(%x, %w), %w in int4 with a scale per block, and two channels of %x that are always equal
    Result: where one row of %w is rounded down, the other one is rounded up: only their sum counts

    The inputs of products are sampled in one run of the float model. Errors are weighted by them (see `ErrorFeedback`),
    as after `weigh-scales`, which then has nothing to do. Weights are changed one at a time, and their integers lie on
    disk until they are written. The plan keeps them, so that a replay needs no data.
    """

    name = "feed-back-errors"
    stage = "calibrate"
    requires = ("calibrate",)
    after = ("smooth", "weigh-scales")

    def run(self, model: Model, ctx: Context) -> bool:
        """Round the weights, and note their integers at them.

        Raises:
            DovetailError: Data is missing or does not fit, or a replayed plan is that of another model.
        """
        if ctx.refusals.fresh or not wanted(ctx, FEEDBACK):
            return False
        from dovetail_quantize.refining.feed_back import feed_back_errors

        return feed_back_errors(model, ctx)


class RecordRefinements(Pass):
    """Record the refinements in the plan, and save their data-dependent results in a file next to it.

    Given:  the biases of 12 layers were corrected
    Result: `refined` in the summary of the plan, with the steps of every backend, the number of layers that each
            changed, and the name of the file with the corrections, for a replay
    """

    name = "record-refinements"
    stage = "calibrate"
    requires = ("calibrate",)
    after = ("equalize", "smooth", "round-weights", "correct-biases", "weigh-scales", "feed-back-errors")

    def run(self, model: Model, ctx: Context) -> bool:
        """Fill the summary of the current plan."""
        if ctx.refusals.fresh:
            return False
        for name, steps in left_out(ctx).items() if ctx.outcome.quantized_values else ():
            why = f"without data, {name} leaves out refinements by which its weights lose less: {', '.join(steps)}"
            ctx.remark("missed", "", "refine", why, suggest="--data with inputs like those that the model will see")
        refines = any(steps_of(ctx).values())
        if not ctx.outcome.quantized_values:
            if refines:
                ctx.remark("analysis", "", "refine", "nothing is quantized, so nothing was refined")
            return False
        from dovetail_quantize.refining.record import RefinementRecord

        record = RefinementRecord.of(ctx)
        if refines or record.found_arrays:
            record.finish(ctx)
        return False
