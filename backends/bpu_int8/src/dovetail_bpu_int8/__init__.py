"""int8 on Horizon's BPUs."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the backend `bpu-int8`, its strategy, its option, its edit, and the facts that its limits use."""
    registry.strategy("bpu-roles", "dovetail_bpu_int8.bpu_roles:BpuRoles")
    registry.edit("bpu-unit-conv", "dovetail_bpu_int8.unit_conv:UnitConv")
    registry.backend("bpu-int8", "dovetail_schemas:backends/bpu_int8.yaml")
    registry.pass_("vendor-notes", "dovetail_bpu_int8.vendor.notes:VendorNotes")
    registry.option("bpu", "dovetail_bpu_int8.vendor.option:BPU")
    registry.command("hb-report", "dovetail_bpu_int8.vendor.report_command:HB_REPORT")
    registry.emitter("hb-files", "dovetail_bpu_int8.vendor.hb_files:HbFiles")
    for fact in (
        "changed_extents",
        "first_extent",
        "largest_batch_extent",
        "largest_extent",
        "largest_matrix_extent",
        "reduced_extent",
        "residual_add",
        "same_ranks",
        "uneven_parts",
        "zeros",
    ):
        registry.fact(fact, f"dovetail_bpu_int8.facts:{fact}")
