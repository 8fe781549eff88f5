"""Backend for float16 on GPUs through ONNX Runtime: CUDA, or WebGPU for those of other vendors."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `gpu-fp16` and its engines."""
    registry.engine("onnxruntime-cuda", "dovetail_gpu_fp16.engine:OnnxRuntimeCuda")
    registry.session_start("onnxruntime-cuda", "dovetail_host:OnnxRuntimeStart")
    registry.engine("half-sums", "dovetail_gpu_fp16.half.engine:HalfSums")
    registry.backend("gpu-fp16", "dovetail_gpu_fp16:gpu_fp16.yaml")
    registry.conformance("gpu-fp16", "dovetail_gpu_fp16:conformance.yaml")
