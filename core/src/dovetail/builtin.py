"""The parts of core that are plugins like any other: the host backend and the engines it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin.registry import Registry

__all__ = ["dovetail_api", "register"]

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Bring the host backend and the two engines that every installation has."""
    registry.backend("host", "dovetail:runtime/host.yaml")
    registry.engine("onnxruntime-cpu", "dovetail.runtime.onnxruntime_cpu:OnnxRuntimeCpu")
    registry.engine("reference", "dovetail.runtime.reference:ReferenceEngine")
