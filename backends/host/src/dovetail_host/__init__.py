"""The host backend: ONNX Runtime on the CPU and the onnx reference, for all nodes that no other backend claims."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `host`, its engines, and passes that prepare saved models for ONNX Runtime."""
    registry.backend("host", "dovetail_host:host.yaml")
    registry.engine("onnxruntime-cpu", "dovetail_host.onnxruntime_cpu:OnnxRuntimeCpu")
    registry.session_start("onnxruntime-cpu", "dovetail_host.session_start:OnnxRuntimeStart")
    registry.engine("reference", "dovetail_host.reference:ReferenceEngine")
    registry.pass_("drop-session-options", "dovetail_host.session_options_of_model:DropSessionOptions")
    registry.pass_("explicit-zero-points", "dovetail_host.loadable:ExplicitZeroPoints")
    registry.pass_("implicit-zero-points", "dovetail_host.loadable:ImplicitZeroPoints")
    registry.pass_("layer-annotations", "dovetail_host.layer_annotations:LayerAnnotations")
    registry.pass_("note-transpose-optimizer", "dovetail_host.loadable:NoteTransposeOptimizer")
    registry.pass_("guard-captured-values", "dovetail_host.loadable:GuardCapturedValues")
