"""Running results: engines and their isolation, region by region or by executors of plugins; and their input data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Bring what runs results, the pass that tries engines, and the command `run`."""
    registry.executor("regions", "dovetail_runtime.runner:Runner")
    registry.pass_("load", "dovetail_runtime.loading:Load")
    registry.command("run", "dovetail_runtime.run_command:RUN")
