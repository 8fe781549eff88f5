"""The engine `onnxruntime-cuda`: ONNX Runtime with its CUDA execution provider."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

from dovetail.plugin import Availability
from dovetail_host import CPU, OnnxRuntimeCpu

_CUDA = "CUDAExecutionProvider"
# The wheels ship the provider as a separate library, so its presence can be checked without an import.
_PROVIDER = "onnxruntime_providers_cuda.dll" if sys.platform == "win32" else "libonnxruntime_providers_cuda.so"
_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_INSTEAD = (
    "a CPU checks the model, which adds in float32 and rounds results; a device that adds in float16 may be worse, and "
    "gpu-fp16:accumulate=half shows by how much"
)


class OnnxRuntimeCuda(OnnxRuntimeCpu):
    """ONNX Runtime's CUDA execution provider, with the CPU provider for operators without a CUDA kernel.

    ONNX Runtime itself moves shape arithmetic, and integer operators without a CUDA kernel, to the CPU; `executed()`
    reports those as `reported-on-cpu`. Float32 is float32: products are not rounded to TF32, the provider's default.

    Options: those of `onnxruntime-cpu`.
    """

    name = "onnxruntime-cuda"
    providers = (_CUDA, CPU)
    device = "cuda"
    way_out = "pip install 'onnxruntime-gpu[cuda,cudnn]', which brings CUDA's libraries and cuDNN"

    def available(self) -> Availability:
        """Check that ONNX Runtime's CUDA provider and an NVIDIA driver are installed."""
        spec = importlib.util.find_spec("onnxruntime")
        folders = [Path(folder) / "capi" for folder in (spec and spec.submodule_search_locations) or ()]
        if not any((folder / _PROVIDER).is_file() for folder in folders):
            return _absent("onnxruntime has no CUDA provider here (pip install 'dovetail-gpu-fp16[cuda]')")
        try:
            ctypes.CDLL(_DRIVER)
        except OSError:
            return _absent(f"there is no NVIDIA driver ({_DRIVER})")
        return Availability(True)


def _absent(why: str) -> Availability:
    return Availability(False, f"{why}; {_INSTEAD}")
