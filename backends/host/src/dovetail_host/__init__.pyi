# What backends and other plugins may use of `dovetail_host`, each name with its module.

from dovetail.plugin import Registry
from dovetail_host.onnxruntime_cpu import CPU as CPU, OnnxRuntimeCpu as OnnxRuntimeCpu
from dovetail_host.session_start import OnnxRuntimeStart as OnnxRuntimeStart

dovetail_api: int

def register(registry: Registry) -> None: ...
