"""The emitter `tensorrt-engine`: a region becomes an engine, and a call of the function that it stands for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dovetail.plugin import Artifact, Call, Emitter, EngineError

from dovetail_tensorrt.bisecting import last_of_unbuildable
from dovetail_tensorrt.builder import OpenExtents
from dovetail_tensorrt.engine_file import DESCRIPTION, ENGINE
from dovetail_tensorrt.libraries import EXTRA, RTX, Library, NoLibrary, library
from dovetail_tensorrt.making import ParserRefusal, make_engine
from dovetail_tensorrt.operator_attributes import engine_attributes, workspace_of
from dovetail_tensorrt.parser import ParserError
from dovetail_tensorrt.profiles.of_region import region_profile
from dovetail_tensorrt.runtime.cuda import NoDevice, open_cuda
from dovetail_tensorrt.target import target_of

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.errors import DovetailError
    from dovetail.passes import Context
    from dovetail.plugin import EmittedRegion


_TARGET = "target"


class TensorRTEngine(Emitter):
    """Builds the engine of a region where a TensorRT is installed.

    What the parser refuses is placed elsewhere. Without a TensorRT, or without bounds of open extents, the region is
    outlined all the same, so that the result has the same nodes everywhere; a note says what is missing.
    """

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the engine and its description, and give the call."""
        ctx = region.context
        if ctx is not None and not ctx.files_wanted:
            return Artifact(node=Call())  # of a trial, which nobody keeps
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
            if not isinstance(error, ParserRefusal) and error.node not in region.nodes:
                error.node = last_of_unbuildable(region.model, found, profile.bounds, target)
            raise _refusal(region, error, found) from error
        return Artifact((ENGINE, DESCRIPTION), call)


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
    # A remark with a suggestion and without a node is printed as a note, which is enough once for one way out.
    said = any((remark.rule, remark.suggest) == ("open-extents", suggest) for remark in ctx.remarks)
    ctx.remark("analysis", region.nodes[0] if said else "", "open-extents", text + way_out, suggest=suggest)


def _refusal(region: EmittedRegion, error: EngineError, found: Library) -> EngineError:
    """The error, naming a node that can be placed elsewhere; all others that the parser names are refused here.

    A conversion cannot: it stands where its readers want it, so that one at fault takes the region with it.
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
