"""The engine `openvino-cpu`: OpenVINO's CPU plugin."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from dovetail.plugin import Availability, Engine, Reads, RegionModel
from dovetail_runtime.serialize import TENSOR_TYPES, source_of

from dovetail_cpu_bf16.frontend_input import prepare_for_frontend
from dovetail_cpu_bf16.inference_mode import infer_in_bfloat16, is_mixed
from dovetail_cpu_bf16.report import refusal
from dovetail_cpu_bf16.widening import ExactConstants
from dovetail_cpu_bf16.workarounds import apply_workarounds

if TYPE_CHECKING:
    import openvino as ov

    from dovetail_cpu_bf16.session import OpenVinoSession


_CONFIGURATION = {"PERFORMANCE_HINT": "LATENCY"}
_TYPES = TENSOR_TYPES - {"string"}
_CAVEAT = "no bfloat16 instructions on this CPU: bfloat16 parts are computed in float32"


class OpenVinoCpu(Engine):
    """OpenVINO's CPU plugin.

    A region with bfloat16 is compiled in OpenVINO's bfloat16 mode, with marks on the operations that the plan has in
    float32 (`inference_mode.py`). That mode rounds less than the types require: operators fused into a preceding
    product, with their constants, and all operators after the last product are computed in float32. If OpenVINO ignores
    a mark, and for regions without bfloat16, `INFERENCE_PRECISION_HINT=f32` computes every operator in its own type.

    OpenVINO computes int64 in 32 bits and float64 in float32. On a CPU without bfloat16 instructions it drops casts to
    bfloat16 and computes in float32, so results there do not show the rounding of bfloat16.

    Calls from several threads run concurrently. A small model runs on its caller's thread; a large one uses all cores,
    shared between calls. `streams` partitions the cores among that many calls, which increases both throughput and
    latency.

    Options: `threads` (0: all cores), `streams` (0: one, for the lowest latency).

    Attributes:
        transforms_low_precision: Whether OpenVINO's low-precision transformations are enabled. They move 8-bit rounding
            across reductions, pooling and padding, which changes results.
        settings: Further properties of the CPU plugin.
    """

    name = "openvino-cpu"
    transforms_low_precision = False
    settings: ClassVar[Mapping[str, object]] = {}
    reads = Reads(opset=26, ir_version=13, types=_TYPES)
    """Opset and types of OpenVINO's ONNX frontend; unsupported newer operators are rejected one by one.
    """

    def available(self) -> Availability:
        """Check whether OpenVINO is installed, with a caveat if the CPU has no bfloat16 instructions."""
        if importlib.util.find_spec("openvino") is None:
            return Availability(False, "openvino is not installed (pip install openvino)")
        return Availability(True, _CAVEAT if _has_bfloat16() is False else "")

    def load(self, region: RegionModel, options: Mapping[str, object]) -> OpenVinoSession:
        """Compile a region.

        Raises:
            EngineError: OpenVINO rejects the region; names the node if OpenVINO does.
        """
        import openvino as ov

        from dovetail_cpu_bf16.session import OpenVinoSession

        region, files = prepare_for_frontend(region)
        config: dict[str, object] = {**_CONFIGURATION, **self.settings}
        config["LP_TRANSFORMS_MODE"] = self.transforms_low_precision
        for option, key in (("threads", "INFERENCE_NUM_THREADS"), ("streams", "NUM_STREAMS")):
            if count := int(cast("int | str", options.get(option, 0))):
                config[key] = count
        source = source_of(region)
        try:
            model, compiled = self.read(source), None
            if is_mixed(model) and _has_bfloat16():
                compiled = infer_in_bfloat16(model, ExactConstants.of(region.model), config)
                model = self.read(source) if compiled is None else model
            if compiled is None:
                compiled = ov.Core().compile_model(model, "CPU", {**config, "INFERENCE_PRECISION_HINT": "f32"})
        except Exception as error:  # the binding raises RuntimeError and its own classes
            raise refusal(error, "refuses", self.name) from error
        return OpenVinoSession(compiled, region, lambda body: self.load(RegionModel(body), options), files, self.name)

    def read(self, source: Path | bytes) -> ov.Model:
        """Read a region's file, and apply the workarounds to its graph."""
        import openvino as ov

        model = ov.Core().read_model(source)
        apply_workarounds(model, low_precision=self.transforms_low_precision)
        return model


def _has_bfloat16() -> bool | None:
    """Check whether the CPU has AVX512-BF16 or AMX-BF16; None if /proc/cpuinfo does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return None if flags is None else bool({"avx512_bf16", "amx_bf16"} & set(flags))
