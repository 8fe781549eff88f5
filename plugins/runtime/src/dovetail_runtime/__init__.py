"""Execution of compiled models: guarded engines, region-by-region and plugin executors, and input data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Register the executor, the pass `load`, options, and the command `run`."""
    registry.executor("regions", "dovetail_runtime.runner:ModelRunner")
    registry.pass_("load", "dovetail_runtime.loading:Load")
    registry.command("run", "dovetail_runtime.run_command:RUN", "compile", "Run a compiled model on data.")
    registry.option("data-workers", "dovetail_runtime.data_workers_option:DATA_WORKERS")
    registry.option("target-only", "dovetail_runtime.target_only:TARGET")
