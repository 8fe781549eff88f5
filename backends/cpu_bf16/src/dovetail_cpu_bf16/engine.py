"""The engine `openvino-cpu`: OpenVINO's CPU plugin, which computes each operator in the type that the graph says."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.runtime.engine import Availability, Reads, RegionModel
from dovetail.runtime.serialise import source_of
from dovetail.runtime.tensors import TENSOR_TYPES

from dovetail_cpu_bf16.frontend_input import prepare_for_frontend
from dovetail_cpu_bf16.inference_mode import infer_in_bfloat16, is_mixed
from dovetail_cpu_bf16.refusals import refusal
from dovetail_cpu_bf16.widening import ExactConstants
from dovetail_cpu_bf16.workarounds import apply_workarounds

if TYPE_CHECKING:
    import openvino as ov

    from dovetail_cpu_bf16.session import OpenVinoSession

__all__ = ["OpenVinoCpu"]

# OpenVINO's own handling of quantised models moves rounding to 8 bits across reductions, pooling and padding, which
# gives other results; without it, they are computed as they are written.
_CONFIGURATION = {"PERFORMANCE_HINT": "LATENCY", "LP_TRANSFORMS_MODE": False}
_TYPES = TENSOR_TYPES - {"string"}
_CAVEAT = "no bfloat16 instructions on this CPU: bfloat16 parts are computed in float32"


class OpenVinoCpu:
    """OpenVINO's CPU plugin.

    A region in bfloat16 is given to OpenVINO's own bfloat16 mode, with marks on the operations that the plan has in
    float32 (`inference_mode.py`). That mode rounds less than the types say: it computes in float32 what is fused behind
    a product, with its constants, and all that follows the last product. Where OpenVINO would not heed a mark, and for
    regions without bfloat16, `INFERENCE_PRECISION_HINT=f32` makes it compute every operator in the type that it has.

    It computes int64 in 32 bits and float64 in float32. On a CPU without bfloat16 instructions it drops casts to
    bfloat16 and computes in float32, so results there do not show bfloat16's rounding.

    Calls from several threads run at the same time. A small model computes on the core of its caller; a large one is
    spread over all cores, and calls share them. `streams` divides the cores among that many calls instead, so that more
    calls per second are answered where many come in, and each takes longer.

    Options: `threads` (0: all cores), `streams` (0: one, for the lowest latency).
    """

    name = "openvino-cpu"

    def available(self) -> Availability:
        """Whether OpenVINO is installed, and whether the CPU has instructions for bfloat16."""
        if importlib.util.find_spec("openvino") is None:
            return Availability(False, "openvino is not installed (pip install openvino)")
        return Availability(True, _CAVEAT if _has_bfloat16() is False else "")

    @property
    def reads(self) -> Reads:
        """What OpenVINO's ONNX frontend reads; operators that are newer than it knows are refused one by one."""
        return Reads(opset=26, ir_version=13, types=_TYPES)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> OpenVinoSession:
        """Make a session; a refusal names the node where OpenVINO does."""
        import openvino as ov

        from dovetail_cpu_bf16.session import OpenVinoSession

        region, files = prepare_for_frontend(region)
        config = dict(_CONFIGURATION)
        for option, key in (("threads", "INFERENCE_NUM_THREADS"), ("streams", "NUM_STREAMS")):
            if int(options.get(option, 0)):
                config[key] = int(options[option])
        source = source_of(region)
        try:
            model, compiled = _read(source), None
            if is_mixed(model) and _has_bfloat16():
                compiled = infer_in_bfloat16(model, ExactConstants.of(region.model), config)
                model = _read(source) if compiled is None else model
            if compiled is None:
                compiled = ov.Core().compile_model(model, "CPU", {**config, "INFERENCE_PRECISION_HINT": "f32"})
        except Exception as error:  # the binding raises RuntimeError and classes of its own
            raise refusal(error, "refuses") from error
        return OpenVinoSession(compiled, region, lambda body: self.load(RegionModel(body), options), files)


def _read(source: Path | bytes) -> ov.Model:
    import openvino as ov

    model = ov.Core().read_model(source)
    apply_workarounds(model)
    return model


def _has_bfloat16() -> bool | None:
    """Whether the CPU has AVX512-BF16 or AMX-BF16; None where the system does not say without loading OpenVINO."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return None if flags is None else bool({"avx512_bf16", "amx_bf16"} & set(flags))
