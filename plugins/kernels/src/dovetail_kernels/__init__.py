"""Operators of vendors: files that define them, kernels that compute them, and the engine that runs kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import Registry

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1
dovetail_kinds = {"operators": "file", "kernel": "code", "device_memory": "code"}


@hookimpl
def register(registry: Registry) -> None:
    """Register the engine, and the pass that selects kernels."""
    registry.pass_("select-kernels", "dovetail_kernels.select_kernels:SelectKernels")
    registry.engine("kernels", "dovetail_kernels.engine:KernelEngine")


@hookimpl
def before_opening(registry: Registry) -> None:
    """Register operators and their lowered forms with onnx, for its checks and shape inference."""
    if len(registry.operators) or len(registry.device_memory):
        from dovetail_kernels.library import register_schemas

        register_schemas(registry)


@hookimpl
def opened(model: Model, registry: Registry) -> None:
    """Add the decompositions of the model's operators to it, as functions."""
    if len(registry.operators):
        from dovetail_kernels.operator_files.opening import add_functions

        add_functions(model, registry)
