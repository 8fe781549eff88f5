"""A compiled model as files that run without Dovetail: models of regions, their description, and a runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Register the command `export`, and the executor `device`."""
    registry.command(
        "export", "dovetail_export.command:EXPORT", "compile", "Write a result as files that run without Dovetail."
    )
    registry.executor("device", "dovetail_export.device:Device")
