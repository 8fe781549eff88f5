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
    registry.pass_("calibrate", "dovetail_quantize.passes:Calibrate")
    registry.pass_("quantize", "dovetail_quantize.passes:Quantize")
    registry.pass_("integer-arithmetic", "dovetail_quantize.passes:IntegerArithmetic")
    registry.option("refine", "dovetail_quantize.refining.steps:REFINE")
    registry.pass_("equalize", "dovetail_quantize.refining.passes:Equalize")
    registry.pass_("smooth", "dovetail_quantize.refining.passes:Smooth")
    registry.pass_("reserve-biases", "dovetail_quantize.refining.passes:ReserveBiases")
    registry.pass_("round-weights", "dovetail_quantize.refining.passes:RoundWeights")
    registry.pass_("correct-biases", "dovetail_quantize.refining.passes:CorrectBiases")
    registry.pass_("weigh-scales", "dovetail_quantize.refining.passes:WeighScales")
    registry.pass_("feed-back-errors", "dovetail_quantize.refining.passes:FeedBackErrors")
    registry.pass_("record-refinements", "dovetail_quantize.refining.passes:RecordRefinements")
    registry.observer("minmax", "dovetail_quantize.observers.extremes:MinMax")
    registry.observer("percentile", "dovetail_quantize.observers.clipping:Percentile")
    registry.observer("mse", "dovetail_quantize.observers.clipping:MeanSquaredError")
    registry.observer("least-squares", "dovetail_quantize.observers.least_squares:LeastSquares")
    registry.observer("kl", "dovetail_quantize.observers.clipping:Entropy")
    registry.observer("isotone", "dovetail_quantize.observers.extremes:Isotone")
    registry.invariant("calibrated", "dovetail_quantize.invariants:Calibrated")
    registry.conversion("quantize", "dovetail_quantize.conversions:QuantizeConversion")
    registry.conversion("dequantize", "dovetail_quantize.conversions:DequantizeConversion")
