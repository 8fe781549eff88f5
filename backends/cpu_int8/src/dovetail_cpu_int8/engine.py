"""The engine `openvino-cpu-int8`: OpenVINO's CPU plugin with its low-precision transformations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from dovetail_cpu_bf16.engine import OpenVinoCpu

from dovetail_cpu_int8.repairs import repair_low_precision
from dovetail_cpu_int8.signed_integers import use_signed_integers

if TYPE_CHECKING:
    from pathlib import Path

    import openvino as ov


class OpenVinoCpuInt8(OpenVinoCpu):
    """OpenVINO's CPU plugin with its low-precision transformations.

    They read QuantizeLinear and DequantizeLinear as the ranges of FakeQuantize, move scales behind products and other
    operators, and so compute these in 8 bits: with VNNI or AMX where the CPU has them. `executed()` names the integers
    that a kernel reads; an operator that the transformations leave alone is reported in floats.

    Options: those of `openvino-cpu`.
    """

    name = "openvino-cpu-int8"
    transforms_low_precision = True
    # Products with weights of few bits and float inputs are computed as the file says. By default, the plugin rounds
    # such inputs to int8.
    settings: ClassVar[Mapping[str, object]] = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}

    def read(self, source: Path | bytes) -> ov.Model:
        """Read a region's file, with workarounds, and hold in int8 what two computed operands are multiplied in."""
        model = super().read(source)
        repair_low_precision(model)
        use_signed_integers(model)
        return model
