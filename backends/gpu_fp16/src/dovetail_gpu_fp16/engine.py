"""The engine `onnxruntime-cuda`: ONNX Runtime with its CUDA execution provider."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.plugin import Availability, EngineError
from dovetail_host import CPU, OnnxRuntimeCpu
from dovetail_onnxruntime_ep import Cuda

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.plugin import RegionModel, Session

_CUDA = "CUDAExecutionProvider"
# The wheels ship the provider as a separate library, so its presence can be checked without an import.
_PROVIDER = "onnxruntime_providers_cuda.dll" if sys.platform == "win32" else "libonnxruntime_providers_cuda.so"
_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_AGAIN = "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'onnxruntime-gpu[cuda,cudnn]'"
_INSTEAD = (
    "a CPU checks the model, which adds in float32 and rounds results; a device that adds in float16 may be worse, and "
    "gpu-fp16:accumulate=half shows by how much"
)


class OnnxRuntimeCuda(OnnxRuntimeCpu):
    """ONNX Runtime's CUDA execution provider, with the CPU provider for operators without a CUDA kernel.

    ONNX Runtime itself moves shape arithmetic, and integer operators without a CUDA kernel, to the CPU; `executed()`
    reports those as `reported-on-cpu`. Float32 is float32: products are not rounded to TF32, the provider's default.

    Where `--engine-env cuda=PATH` names an environment with `onnxruntime-gpu`, which excludes the `onnxruntime` here,
    regions run there, as by `onnxruntime-ep-cuda`.

    Options: those of `onnxruntime-cpu`.
    """

    name = "onnxruntime-cuda"
    providers = (_CUDA, CPU)
    device = "cuda"
    way_out = "pip install 'onnxruntime-gpu[cuda,cudnn]', which brings CUDA's libraries and cuDNN"

    def available(self) -> Availability:
        """Check that ONNX Runtime's CUDA provider and an NVIDIA driver are installed."""
        try:
            ctypes.CDLL(_DRIVER)
            driver = ""
        except OSError:
            driver = f"there is no NVIDIA driver ({_DRIVER})"
        if place := Cuda.provider.place:
            try:
                found = Cuda.provider.described()
            except EngineError as error:
                return _absent(error.message)
            return _absent(driver) if driver else Availability(True, f"onnxruntime {found['onnxruntime']} in {place}")
        spec = importlib.util.find_spec("onnxruntime")
        folders = [Path(folder) / "capi" for folder in (spec and spec.submodule_search_locations) or ()]
        folder = next((folder for folder in folders if (folder / _PROVIDER).is_file()), None)
        if folder is None:
            return _absent("onnxruntime has no CUDA provider here (pip install 'dovetail-gpu-fp16[cuda]')")
        if _is_overwritten(folder):
            return _absent(f"another onnxruntime was installed over the one with CUDA ({_AGAIN})")
        return _absent(driver) if driver else Availability(True)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> Session:
        """Load a region, here or in the environment that was named.

        Raises:
            EngineError: ONNX Runtime rejects the region; names the node if ONNX Runtime does.
        """
        return Cuda().load(region, options) if Cuda.provider.place else super().load(region, options)


def _is_overwritten(folder: Path) -> bool:
    """Check whether another package of ONNX Runtime was installed over the one with CUDA: it leaves the provider."""
    about = folder / "build_and_package_info.py"
    return about.is_file() and "-gpu" not in about.read_text("utf-8", errors="replace")


def _absent(why: str) -> Availability:
    return Availability(False, f"{why}; {_INSTEAD}")
