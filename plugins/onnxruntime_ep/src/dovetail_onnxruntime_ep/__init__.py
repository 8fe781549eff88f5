"""Engines that run regions on execution providers of ONNX Runtime: from plugin libraries, or of another environment."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register an engine for every provider that is known by name."""
    for name, engine in (
        ("qnn", "Qnn"),
        ("openvino", "OpenVino"),
        ("webgpu", "WebGpu"),
        ("nv-tensorrt-rtx", "NvTensorRtRtx"),
        ("cann", "Cann"),
        ("coreml", "CoreMl"),
        ("directml", "DirectMl"),
        ("migraphx", "MiGraphX"),
        ("vitisai", "VitisAi"),
    ):
        registry.engine(f"onnxruntime-ep-{name}", f"dovetail_onnxruntime_ep.engines:{engine}")
