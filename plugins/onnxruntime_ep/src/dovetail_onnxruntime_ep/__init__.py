"""Engines that run regions on execution providers of ONNX Runtime: from plugin libraries, or of another environment."""

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
    """Register an engine for every provider that is known by name."""
    for name, engine in (
        ("qnn", "Qnn"),
        ("openvino", "OpenVino"),
        ("webgpu", "WebGpu"),
        ("cuda", "Cuda"),
        ("nv-tensorrt-rtx", "NvTensorRtRtx"),
        ("cann", "Cann"),
        ("coreml", "CoreMl"),
        ("directml", "DirectMl"),
        ("migraphx", "MiGraphX"),
        ("vitisai", "VitisAi"),
    ):
        registry.engine(f"onnxruntime-ep-{name}", f"dovetail_onnxruntime_ep.engines:{engine}")
