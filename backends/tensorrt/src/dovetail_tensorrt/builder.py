"""Build an engine of a parsed region."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.plugin import EngineError

from dovetail_tensorrt.logger import plain
from dovetail_tensorrt.parser import LOCK, ParsedModel
from dovetail_tensorrt.target import ANY, set_target

if TYPE_CHECKING:
    from dovetail_tensorrt.profiles.bounds import Bounds


# What the bounds of inputs make impossible is no fault of the node that meets it first.
_PROFILE = re.compile(r"\bvalues for profile \d+ violate|\bprofile \d+ is not valid", re.IGNORECASE)
_FITTING = "give other bounds with --profile: some nets take multiples of an extent only"


class OpenExtents(EngineError):
    """An engine needs bounds that nobody gives, or cannot have those that are given."""


@dataclass(frozen=True)
class BuildSettings:
    """What shapes an engine besides its region.

    Attributes:
        name: The name of the network. It is written into the engine; a network without one is numbered, so that the
            same engine built twice would differ.
        target: The GPUs; see `dovetail_tensorrt.target`.
        workspace: Bytes; 0 for as much as the GPU has.
    """

    name: str
    target: str = ANY
    workspace: int = 0


def build(parsed: ParsedModel, profile: Mapping[str, Bounds], settings: BuildSettings) -> Any:
    """The serialised engine, which has the buffer protocol.

    Args:
        parsed: A region that the parser took.
        profile: The bounds of its inputs.
        settings: What else shapes the engine.

    Raises:
        OpenExtents: The profile lacks an input, or is impossible.
        EngineError: The builder refuses the network; names the node where it tells.
    """
    trt = parsed.library.trt
    with LOCK:
        config = parsed.builder.create_builder_config()
        if settings.workspace:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace)
        set_target(config, parsed.library, settings.target)
        parsed.network.name = settings.name
        if any(-1 in tensor.shape or tensor.is_shape for tensor in parsed.verdict.inputs):
            config.add_optimization_profile(_profile(parsed, profile))
        parsed.logger.taken()
        engine = parsed.builder.build_serialized_network(parsed.network, config)
        said = [plain(text) for kind, text in parsed.logger.taken() if kind == "error"]
    if engine is None:
        why = said[0] if said else "it gives no reason"
        if _PROFILE.search(why):
            raise OpenExtents(f"the region cannot have the extents of the profile: {why}", _FITTING)
        raise EngineError(f"{parsed.library.title} does not build the region: {why}", node=_named(why, parsed))
    return engine


def _profile(parsed: ParsedModel, given: Mapping[str, Bounds]) -> Any:
    profile = parsed.builder.create_optimization_profile()
    for tensor in parsed.verdict.inputs:
        bounds = given.get(tensor.name)
        if tensor.is_shape:
            if bounds is None or bounds.values is None:
                raise OpenExtents(
                    f"the numbers of '{tensor.name}' are used as extents, and nobody says their bounds",
                    f"give them: --profile {shlex.quote(tensor.name)}:=MIN:=OPT:=MAX, with commas between numbers",
                )
            profile.set_shape_input(tensor.name, *bounds.values)
        elif -1 in tensor.shape:
            if bounds is None:
                raise OpenExtents(
                    f"no profile says the extents of '{tensor.name}'", f"--profile {shlex.quote(tensor.name)}:..."
                )
            profile.set_shape(tensor.name, *bounds.shapes)
    return profile


def _named(text: str, parsed: ParsedModel) -> str:
    """The one layer that a message names, which has the name of its node; empty if it names none or several."""
    names = {layer.name for layer in parsed.verdict.layers if layer.name and layer.name in text}
    longest = [name for name in names if not any(name != other and name in other for other in names)]
    return longest[0] if len(longest) == 1 else ""
