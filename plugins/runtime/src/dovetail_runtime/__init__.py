"""Running results: engines and their isolation, region by region or by executors of plugins; and their input data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Bring what runs results, the passes that try engines and select kernels, and the command `run`."""
    registry.executor("regions", "dovetail_runtime.runner:Runner")
    registry.pass_("load", "dovetail_runtime.loading:Load")
    registry.command("run", "dovetail_runtime.run_command:RUN")
    registry.pass_("select-kernels", "dovetail_runtime.kernels.select_kernels:SelectKernels")
    registry.engine("kernels", "dovetail_runtime.kernels.engine:KernelEngine")


@hookimpl
def before_opening(registry: Registry) -> None:
    """Let checks and inference know operators that have their kernel, in models that were written with them."""
    if len(registry.operators) or len(registry.device_memory):
        from dovetail_runtime.kernels.library import register_lowered

        register_lowered(registry)
