"""The emitter `tensorrt-engine`: a region becomes an engine, and a call of the function that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.plugin import Artifact, Call

from dovetail_tensorrt.engine_file import DESCRIPTION, ENGINE
from dovetail_tensorrt.libraries import Library, NoLibrary, library
from dovetail_tensorrt.making import ParserRefusal, make_engine
from dovetail_tensorrt.operator_attributes import engine_attributes, workspace_of
from dovetail_tensorrt.parser import ParserError
from dovetail_tensorrt.profiles.of_region import RegionProfile, region_profile
from dovetail_tensorrt.target import target_of

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.passes import Context
    from dovetail.plugin import EmittedRegion

__all__ = ["TensorRTEngine"]

_TARGET = "target"


class TensorRTEngine:
    """Builds the engine of a region where a TensorRT is installed.

    What the parser refuses is placed elsewhere. Without a TensorRT, or without bounds of open extents, the region is
    outlined all the same, so that the result has the same nodes everywhere; a note says what is missing.
    """

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write the engine and its description, and give the call."""
        ctx = region.context
        profile = region_profile(region.model, ctx.model if ctx is not None else None, ctx)
        call = Call(engine_attributes(region.model, workspace_of(ctx), profile))
        if ctx is not None and not ctx.files_wanted:
            return Artifact(node=call)
        try:
            found = library()
        except NoLibrary as error:
            _say_that_nothing_is_built(ctx, error)
            return Artifact(node=call)
        if profile.lost:
            _say_what_is_open(ctx, region, profile)
            return Artifact(node=call)
        try:
            self._make(region, found, profile, folder)
        except ParserRefusal as refusal:
            _refuse_others(region, refusal.errors, found)
            raise
        return Artifact((ENGINE, DESCRIPTION), call)

    def _make(self, region: EmittedRegion, found: Library, profile: RegionProfile, folder: Path) -> None:
        asked = dict(getattr(region.backend, "chosen", {})).get(_TARGET, "")
        target = target_of(found, asked, None)
        make_engine(region.model, found, profile.bounds, target, workspace_of(region.context), folder)


def _say_that_nothing_is_built(ctx: Context | None, error: NoLibrary) -> None:
    if ctx is None or any(remark.rule == "not-built" for remark in ctx.remarks):
        return
    why = f"no engine was built, and the table of the backend alone decided: {error.message}"
    ctx.remark("analysis", "", "not-built", why, suggest=error.hint)


def _say_what_is_open(ctx: Context | None, region: EmittedRegion, profile: RegionProfile) -> None:
    if ctx is None:
        return
    why = f"{region.name} has no engine, because an engine is built for bounds of extents: {'; '.join(profile.lost)}"
    hint = profile.suggest and f"; {profile.suggest}, or --data, gives bounds"
    suggest = profile.suggest or "fix the shapes: --fix-shape"
    # A remark with a suggestion and without a node is printed as a note, which is enough once for one way out.
    said = any((remark.rule, remark.suggest) == ("open-extents", suggest) for remark in ctx.remarks)
    ctx.remark("analysis", region.nodes[0] if said else "", "open-extents", f"{why}{hint}", suggest=suggest)


def _refuse_others(region: EmittedRegion, errors: Sequence[ParserError], found: Library) -> None:
    """Refuse all nodes that the parser names but the first, which the error names; one round is enough for all."""
    ctx = region.context
    if ctx is None or ctx.model is None:
        return
    why = {error.node: error.text for error in errors[1:] if error.node and error.node != errors[0].node}
    for node in ctx.model.graph if why else ():
        if node.name in why and node.name in region.nodes:
            text = f"the parser of {found.title} refuses it: {why[node.name]}"
            ctx.refuse(node, region.backend.name, text, rule="not-emitted", kind="failed")
