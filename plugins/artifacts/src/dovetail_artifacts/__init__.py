"""Regions as model-local functions, and what backends make of them for their own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import hookimpl

if TYPE_CHECKING:
    from dovetail.plugin import Registry

dovetail_api = 1


@hookimpl
def register(registry: Registry) -> None:
    """Register the passes."""
    registry.pass_("outline-regions", "dovetail_artifacts.outline_regions:OutlineRegions")
    registry.pass_("emit-artifacts", "dovetail_artifacts.emit_artifacts:EmitArtifacts")
