"""Quantization: quantized values, calibration, observers, and conversions between floats and integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Register the passes, compile option, observers and conversions of this plugin."""
    registry.pass_("calibrate", "dovetail_quantize.calibrate:Calibrate")
    registry.pass_("quantize", "dovetail_quantize.quantize:Quantize")
    registry.pass_("integer-arithmetic", "dovetail_quantize.arithmetic.integer_arithmetic:IntegerArithmetic")
    registry.option("refine", "dovetail_quantize.refining.steps:REFINE")
    registry.pass_("equalize", "dovetail_quantize.refining.equalize:Equalize")
    registry.pass_("smooth", "dovetail_quantize.refining.smooth:Smooth")
    registry.pass_("reserve-biases", "dovetail_quantize.refining.biases:ReserveBiases")
    registry.pass_("round-weights", "dovetail_quantize.refining.rounding:RoundWeights")
    registry.pass_("correct-biases", "dovetail_quantize.refining.biases:CorrectBiases")
    registry.pass_("weigh-scales", "dovetail_quantize.refining.weighted_scales:WeighScales")
    registry.pass_("feed-back-errors", "dovetail_quantize.refining.feed_back:FeedBackErrors")
    registry.pass_("record-refinements", "dovetail_quantize.refining.record:RecordRefinements")
    registry.observer("minmax", "dovetail_quantize.observers.extremes:MinMax")
    registry.observer("percentile", "dovetail_quantize.observers.clipping:Percentile")
    registry.observer("mse", "dovetail_quantize.observers.clipping:MeanSquaredError")
    registry.observer("least-squares", "dovetail_quantize.observers.least_squares:LeastSquares")
    registry.observer("kl", "dovetail_quantize.observers.clipping:Entropy")
    registry.observer("isotone", "dovetail_quantize.observers.extremes:Isotone")
    registry.invariant("calibrated", "dovetail_quantize.invariants:Calibrated")
    registry.conversion("quantize", "dovetail_quantize.conversions:QuantizeConversion")
    registry.conversion("dequantize", "dovetail_quantize.conversions:DequantizeConversion")
