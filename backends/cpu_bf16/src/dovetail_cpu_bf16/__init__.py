"""Backend for bfloat16 on CPUs through OpenVINO."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `cpu-bf16`, its engine with the start of its sessions, and the facts that its limits use."""
    registry.engine("openvino-cpu", "dovetail_cpu_bf16.engine:OpenVinoCpu")
    registry.session_start("openvino-cpu", "dovetail_cpu_bf16.session_start:OpenVinoStart")
    registry.backend("cpu-bf16", "dovetail_cpu_bf16:cpu_bf16.yaml")
    registry.conformance("cpu-bf16", "dovetail_cpu_bf16:conformance.yaml")
    registry.edit("clamp-comparisons", "dovetail_cpu_bf16.clamped_comparisons:ClampComparisons")
    registry.edit("early-casts", "dovetail_cpu_bf16.early_casts:EarlyCasts")
    registry.edit("expand-tiles", "dovetail_cpu_bf16.expanded_tiles:ExpandTiles")
    registry.edit("explicit-pads", "dovetail_cpu_bf16.explicit_pads:ExplicitPads")
    for fact in (
        "channel_multiplier",
        "computes_integers",
        "dynamic_extents",
        "dynamic_graph",
        "foreign_activations",
        "indices_of_last_axis",
        "wide_integers",
        "nested_bodies",
        "padded_pointwise",
        "resizes_channels",
        "rounds",
        "strided_to_one_column",
    ):
        registry.fact(fact, f"dovetail_cpu_bf16.facts:{fact}")
    for fact in ("reserved_rows", "trip_outputs", "trips"):
        registry.fact(fact, f"dovetail_cpu_bf16.loop_trips:{fact}")
