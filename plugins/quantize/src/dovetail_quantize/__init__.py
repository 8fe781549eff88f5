"""Quantisation: holdings, calibration on data, observers, and the conversions between floats and integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Register passes, observers and conversions."""
    registry.pass_("calibrate", "dovetail_quantize.calibrate:Calibrate")
    registry.pass_("quantise", "dovetail_quantize.quantise:Quantise")
    registry.observer("minmax", "dovetail_quantize.observers.minmax:MinMax")
    registry.observer("percentile", "dovetail_quantize.observers.percentile:Percentile")
    registry.observer("mse", "dovetail_quantize.observers.mse:MeanSquaredError")
    registry.observer("kl", "dovetail_quantize.observers.kl:Entropy")
    registry.observer("isotone", "dovetail_quantize.observers.isotone:Isotone")
    registry.conversion("quantize", "dovetail_quantize.conversions:Quantize")
    registry.conversion("dequantize", "dovetail_quantize.conversions:Dequantize")
