"""Kernels: what computes single operators, chosen by device, layout and element type."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the pass that selects kernels, and the engine that runs them."""
    registry.pass_("select-kernels", "dovetail_kernels.select_kernels:SelectKernels")
    registry.engine("kernels", "dovetail_kernels.engine:KernelEngine")


@hookimpl
def before_opening(registry):
    """Let checks and inference know operators that have their kernel, in models that were written with them."""
    if len(registry.operators) or len(registry.device_memory):
        from dovetail_kernels.schemas import register_lowered

        register_lowered(registry)
