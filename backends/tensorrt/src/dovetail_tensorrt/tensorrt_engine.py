"""The emitter `tensorrt-engine`: build an engine for a region, and a call of the region's function."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dovetail.plugin import Artifact, Call, Emitter, EngineError

from dovetail_tensorrt.cache import DESCRIPTION, ENGINE
from dovetail_tensorrt.libraries import EXTRA, RTX, Library, NoLibrary, library
from dovetail_tensorrt.making import OpenExtents, ParserRefusal, last_of_unbuildable, make_engine
from dovetail_tensorrt.parser import ParserError
from dovetail_tensorrt.profiles.of_region import region_profile
from dovetail_tensorrt.profiles.option import OPTION, WORKSPACE
from dovetail_tensorrt.runtime.cuda import NoDevice, open_cuda
from dovetail_tensorrt.target import target_of

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from dovetail.errors import DovetailError
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import EmittedRegion

    from dovetail_tensorrt.profiles.of_region import RegionProfile


_LOW = {"FLOAT16": "enable_fp16", "BFLOAT16": "enable_bf16", "INT8": "enable_int8"}
_LOW_BORDER = "enable_low_precision_io"


def engine_attributes(region: Model, workspace: int, profile: RegionProfile) -> dict[str, int | list[str]]:
    """Return the attributes of an engine call by name.

    `enable_fp16`, `enable_bf16` and `enable_int8` tell which low types occur inside. They are informative, because
    TensorRT 11 takes types from the graph. `enable_low_precision_io` tells whether 16-bit floats cross the border.

    Args:
        region: The region in the form that engines load.
        workspace: Bytes; 0 means no limit.
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
    """Return the bytes of `--workspace`, or those of a replayed plan; 0 means no limit."""
    if ctx is None:
        return 0
    replayed = ctx.request.plan.summary.get("options", {}).get(OPTION, {}) if ctx.request.plan is not None else {}
    return int({**replayed, **ctx.request.options.get(OPTION, {})}.get(WORKSPACE, 0))


def recorded_workspace(call: ir.Node | None) -> int:
    """Return the workspace recorded in a call of a region's function."""
    return call.attributes.get_int(WORKSPACE, 0) if call is not None else 0


_TARGET = "target"


class TensorRTEngine(Emitter):
    """Builds the engine of a region if a TensorRT is installed.

    Nodes that the parser rejects are placed elsewhere. Without a TensorRT, or without bounds of open extents, the
    region is still outlined, so that the result has the same nodes on every machine; a note reports the missing part.
    """

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the engine and its description, and return the call."""
        ctx = region.context
        if ctx is not None and not ctx.files_wanted:
            return Artifact(node=Call())  # a trial needs no files
        profile = region_profile(region.model, ctx.model if ctx is not None else None, ctx)
        call = Call(engine_attributes(region.model, workspace_of(ctx), profile))
        try:
            found = library()
            capability = None if found.sdk == RTX else open_cuda(found.cudart).capability()
        except (NoLibrary, NoDevice) as error:
            _say_that_nothing_is_built(ctx, error)
            return Artifact(node=call)
        if profile.lost:
            _say_what_is_open(region, "; ".join(profile.lost), profile.suggest)
            return Artifact(node=call)
        try:
            asked = region.backend.chosen.get(_TARGET, "")
            target = target_of(found, asked, capability)
            note = partial(_note, ctx)
            make_engine(region.model, found, profile.bounds, target, workspace_of(ctx), folder, note=note)
        except OpenExtents as error:
            _say_what_is_open(region, error.message, error.hint)
            return Artifact(node=call)
        except EngineError as error:
            if isinstance(error, ParserRefusal) and _lacks_plugins(region, error):
                _say_that_nothing_is_built(ctx, error)
                return Artifact(node=call)
            if not isinstance(error, ParserRefusal) and error.node not in region.nodes:
                error.node = last_of_unbuildable(region.model, found, profile.bounds, target)
            raise _refusal(region, error, found) from error
        return Artifact((ENGINE, DESCRIPTION), call)


def _lacks_plugins(region: EmittedRegion, error: ParserRefusal) -> bool:
    """Check whether all that the parser refuses are plugins, which the program that builds the engine registers."""
    import onnx

    plugins = {
        node.name
        for node in region.model.nodes()
        if node.domain in ("", "TRT") and not onnx.defs.has(node.op_type, node.domain)
    }
    return all(one.node in plugins for one in error.errors)


def _say_that_nothing_is_built(ctx: Context | None, error: DovetailError) -> None:
    if ctx is None or any(remark.rule == "not-built" for remark in ctx.remarks):
        return
    why = f"no engine was built, and the table of the backend alone decided: {error.message}"
    ctx.remark("analysis", "", "not-built", why, suggest=error.hint or EXTRA)


def _note(ctx: Context | None, text: str) -> None:
    if ctx is not None:
        ctx.remark("analysis", "", "engine-cache", text, suggest="remove the entry, if that happens again")


def _say_what_is_open(region: EmittedRegion, why: str, suggest: str) -> None:
    ctx = region.context
    if ctx is None:
        return
    text = f"{region.name} has no engine, because an engine is built for bounds of extents: {why}"
    way_out = f"; {suggest}, or --data, gives bounds" if suggest.startswith("--") else ""
    suggest = suggest or "fix the shapes: --fix-shape"
    # A remark with a suggestion but no node is printed as a note; once per suggestion is enough.
    said = any((remark.rule, remark.suggest) == ("open-extents", suggest) for remark in ctx.remarks)
    ctx.remark("analysis", region.nodes[0] if said else "", "open-extents", text + way_out, suggest=suggest)


def _refusal(region: EmittedRegion, error: EngineError, found: Library) -> EngineError:
    """Return the error with a node that can be placed elsewhere; refuse all other nodes that the parser names.

    A conversion cannot be placed elsewhere: its position depends on its readers, so its error refuses the whole region.
    """
    errors = error.errors if isinstance(error, ParserRefusal) else (ParserError(error.node, "", error.message),)
    why = {one.node: one.text for one in errors if one.node in region.nodes}
    first = next(iter(why), "")
    ctx = region.context
    for node in ctx.model.graph if ctx is not None and ctx.model is not None and len(why) > 1 else ():
        if ctx is not None and node.name in why and node.name != first:
            text = f"the parser of {found.title} refuses it: {why[node.name]}"
            ctx.refuse(node, region.backend.name, text, rule="not-emitted", kind="failed")
    said = next((one for one in errors if one.node == first), errors[0])
    message = f"the parser of {found.title} refuses {said}" if isinstance(error, ParserRefusal) else error.message
    return EngineError(message, error.hint, first)
