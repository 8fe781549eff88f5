# What backends and other plugins may use of `dovetail_onnxruntime_ep`, each name with its module.

from dovetail.plugin import Registry
from dovetail_onnxruntime_ep.context import ContextEmitter as ContextEmitter
from dovetail_onnxruntime_ep.engines import (
    Cuda as Cuda,
    ProviderEngine as ProviderEngine,
    Qnn as Qnn,
    WebGpu as WebGpu,
)
from dovetail_onnxruntime_ep.providers import Provider as Provider

dovetail_api: int

def register(registry: Registry) -> None: ...
