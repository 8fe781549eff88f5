"""Backend for int8 on Horizon BPUs."""

from dovetail.plugin import hookimpl

dovetail_api = 1

_FACTS = (
    "changed_extents",
    "first_extent",
    "image_channels",
    "image_height",
    "image_width",
    "indivisible_parts",
    "largest_batch_extent",
    "largest_extent",
    "largest_matrix_extent",
    "largest_size",
    "not_computed",
    "only_gemms_read",
    "operands",
    "output_layout",
    "reduced_extent",
    "residual_add",
    "same_ranks",
    "second_size",
    "zeros",
)
_ACTIVATIONS = ("divides_by_number", "in_activation", "in_gelu", "in_swish")
_BROADCASTS = ("broadcast_first_axis", "broadcast_operands", "listed_broadcast", "merged_rank")


@hookimpl
def register(registry):
    """Register the backend `bpu-int8`, its strategy, options, edit, and the facts that its limits use."""
    registry.strategy("bpu-roles", "dovetail_bpu_int8.bpu_roles:BpuRoles")
    registry.observer("mix", "dovetail_bpu_int8.mixture:Mixture")
    registry.edit("bpu-unit-conv", "dovetail_bpu_int8.unit_conv:UnitConv")
    registry.backend("bpu-int8", "dovetail_bpu_int8:bpu_int8.yaml")
    registry.conformance("bpu-int8", "dovetail_bpu_int8:conformance.yaml")
    registry.pass_("bpu-heads", "dovetail_bpu_int8.heads:AdviseOnHeads", for_backend="bpu-int8")
    registry.pass_("vendor-notes", "dovetail_bpu_int8.vendor.option:VendorNotes")
    registry.option("unit-conv", "dovetail_bpu_int8.unit_conv_option:UNIT_CONV")
    registry.option("bpu", "dovetail_bpu_int8.vendor.option:BPU")
    registry.command(
        "bpu report",
        "dovetail_bpu_int8.vendor.commands:REPORT",
        "understand",
        "Print a result for bpu-int8 as hb_mapper prints it.",
    )
    registry.command(
        "bpu diff",
        "dovetail_bpu_int8.vendor.commands:DIFF",
        "understand",
        "Compare a result for bpu-int8 with a log of hb_mapper.",
    )
    registry.emitter("hb-files", "dovetail_bpu_int8.vendor.hb_files:HbFiles")
    for fact in _FACTS:
        registry.fact(fact, f"dovetail_bpu_int8.facts:{fact}")
    for fact in _ACTIVATIONS:
        registry.fact(fact, f"dovetail_bpu_int8.activations:{fact}")
    registry.fact("scales_by_number", "dovetail_bpu_int8.tails:scales_by_number")
    for fact in _BROADCASTS:
        registry.fact(fact, f"dovetail_bpu_int8.facts:{fact}")
