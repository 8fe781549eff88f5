"""The host: ONNX Runtime on the CPU and the onnx reference, which run whatever no other backend takes."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """The backend `host`, and the two engines that run on every machine."""
    registry.backend("host", "dovetail_host:host.yaml")
    registry.engine("onnxruntime-cpu", "dovetail_host.onnxruntime_cpu:OnnxRuntimeCpu")
    registry.engine("reference", "dovetail_host.reference:ReferenceEngine")
