"""Backend for float16 on NVIDIA GPUs through ONNX Runtime."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `gpu-fp16` and its engine."""
    registry.engine("onnxruntime-cuda", "dovetail_gpu_fp16.engine:OnnxRuntimeCuda")
    registry.backend("gpu-fp16", "dovetail_gpu_fp16:gpu_fp16.yaml")
    registry.conformance("gpu-fp16", "dovetail_gpu_fp16:conformance.yaml")
