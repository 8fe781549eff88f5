"""Passes that place operators on backends: edge kinds, strategies and regions."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the passes and strategies of this plugin."""
    registry.pass_("apply-edits", "dovetail_placement.edits:ApplyEdits")
    registry.pass_("edge-kinds", "dovetail_placement.edge_kinds:MarkEdgeKinds")
    registry.pass_("place", "dovetail_placement.place:Place")
    registry.pass_("copy-shape-cones", "dovetail_placement.engine_regions.shape_cones:CopyShapeCones")
    registry.pass_("form-regions", "dovetail_placement.regions.form_regions:FormRegions")
    registry.pass_("outline-regions", "dovetail_placement.artifacts.passes:OutlineRegions")
    registry.pass_("emit-artifacts", "dovetail_placement.artifacts.passes:EmitArtifacts")
    registry.invariant("placed", "dovetail_placement.invariants:Placed")
    registry.invariant("numbered", "dovetail_placement.invariants:Numbered")
    registry.strategy("autocast", "dovetail_placement.strategies.every_node:Autocast")
    registry.strategy("conservative", "dovetail_placement.strategies.dispatch:Conservative")
    registry.strategy("conv-to-conv", "dovetail_placement.strategies.dispatch:ConvToConv")
    registry.strategy("aggressive", "dovetail_placement.strategies.dispatch:Aggressive")
    registry.strategy("pointwise", "dovetail_placement.strategies.dispatch:Pointwise")
    registry.strategy("all-in", "dovetail_placement.strategies.dispatch:AllIn")
    registry.strategy("perseus", "dovetail_placement.strategies.dispatch:Perseus")
    registry.strategy("roles", "dovetail_placement.strategies.roles:Roles")
    registry.strategy("engine-regions", "dovetail_placement.engine_regions.strategy:EngineRegionsStrategy")
    registry.strategy("host", "dovetail_placement.strategies.every_node:Host")
    registry.emitter("region-onnx", "dovetail_placement.artifacts.region_onnx:RegionOnnx")
    registry.partitioner("topological", "dovetail_placement.regions.topological:Topological")
    registry.partitioner("engine-regions", "dovetail_placement.engine_regions.partitioner:EngineRegions")
