"""The attributes of the engine operator: which numbers it uses, how much memory, and for which shapes it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_tensorrt.profiles.option import OPTION, WORKSPACE

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_tensorrt.profiles.of_region import RegionProfile


_LOW = {"FLOAT16": "enable_fp16", "BFLOAT16": "enable_bf16", "INT8": "enable_int8"}
_LOW_BORDER = "enable_low_precision_io"


def engine_attributes(region: Model, workspace: int, profile: RegionProfile) -> dict[str, int | list[str]]:
    """The attributes by name.

    `enable_fp16`, `enable_bf16` and `enable_int8` say which low types occur inside; TensorRT 11 takes them from the
    graph, so they tell and do not command. `enable_low_precision_io` says that floats of 16 bits cross the border.

    Args:
        region: The region as engines load it.
        workspace: Bytes; 0 for as much as the GPU has.
        profile: The bounds of its inputs.
    """
    types = {
        value.dtype.name for node in region.nodes() for value in (*node.inputs, *node.outputs) if value and value.dtype
    }
    border = {value.dtype.name for value in (*region.graph.inputs, *region.graph.outputs) if value.dtype}
    attributes: dict[str, int | list[str]] = {name: int(kind in types) for kind, name in _LOW.items()}
    attributes[_LOW_BORDER] = int(not border.isdisjoint(("FLOAT16", "BFLOAT16")))
    attributes[WORKSPACE] = workspace
    return attributes | profile.attributes()


def workspace_of(ctx: Context | None) -> int:
    """The bytes of `--workspace`, or those that a replayed plan was made with; 0 for as much as the GPU has."""
    if ctx is None:
        return 0
    plan = ctx.request.plan
    summary = plan.get("summary", {}) if isinstance(plan, Mapping) else getattr(plan, "summary", {})
    replayed = summary.get("options", {}).get(OPTION, {})
    return int({**replayed, **ctx.request.options.get(OPTION, {})}.get(WORKSPACE, 0))


def recorded_workspace(call: ir.Node | None) -> int:
    """The bytes that a call of a region's function records."""
    return call.attributes.get_int(WORKSPACE, 0) if call is not None else 0
