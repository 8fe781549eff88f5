"""The engine `openvino-cpu-int8`: OpenVINO's CPU plugin with its low-precision transformations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import Availability
from dovetail_cpu_bf16 import OpenVinoCpu
from dovetail_runtime import saturates_dot_products

from dovetail_cpu_int8.repairs import repair_low_precision
from dovetail_cpu_int8.saturation import sums_are_exact
from dovetail_cpu_int8.signed_integers import use_signed_integers

if TYPE_CHECKING:
    from pathlib import Path

    import openvino as ov
    from dovetail.ir import Model


_CAVEAT = (
    "no VNNI or AMX on this CPU, where sums of 8-bit products saturate: they are computed in float32, unless weights "
    "have 7 bits (cpu-int8:weight_range=reduced)"
)


class OpenVinoCpuInt8(OpenVinoCpu):
    """OpenVINO's CPU plugin with its low-precision transformations.

    They read QuantizeLinear and DequantizeLinear as the ranges of FakeQuantize, move scales after products and other
    operators, and so compute these in 8 bits: with VNNI or AMX where the CPU has them. `executed()` names the integers
    that a kernel reads; an operator that the transformations leave alone is reported in floats.

    On other x86 CPUs its kernels saturate, so a region is compiled without the transformations, and computes the same
    integers in float32, unless its weights are small enough (`saturation.py`).

    Options: those of `openvino-cpu`.
    """

    name = "openvino-cpu-int8"

    def available(self) -> Availability:
        """Check whether OpenVINO is installed, with a caveat if the CPU has no 8-bit dot products."""
        found = super().available()
        return Availability(True, _CAVEAT if saturates_dot_products() else "") if found.ok else found

    def computes_in_low_precision(self, model: Model) -> bool:
        """Check whether 8-bit sums of a region are exact on this CPU."""
        return not saturates_dot_products() or not self.saturates(model)

    def saturates(self, model: Model) -> bool:
        """Check whether a sum of 8-bit products of a region may saturate without VNNI."""
        return not sums_are_exact(model)

    def read(self, source: Path | bytes, low_precision: bool) -> ov.Model:
        """Read a region's file, with workarounds, and use int8 for products of two computed operands."""
        model = super().read(source, low_precision)
        repair_low_precision(model)
        if low_precision:
            use_signed_integers(model)
        return model
