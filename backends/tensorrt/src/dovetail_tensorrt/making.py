"""Creation of a region's engine: from the cache, or parsed and built."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.planning import extract, given_regions
from dovetail.plugin import EngineError
from dovetail_onnx import file_sha256, replacing_file

from dovetail_tensorrt.cache import ENGINE, EngineFile, EnginePort, cache_key, engine_from_cache, write_engine
from dovetail_tensorrt.digest import content_digest
from dovetail_tensorrt.libraries import plain
from dovetail_tensorrt.parser import LOCK, NetworkTensor, ParsedModel, ParserError, parse
from dovetail_tensorrt.target import ANY, set_target

if TYPE_CHECKING:
    from dovetail.ir import Model

    from dovetail_tensorrt.libraries import Library
    from dovetail_tensorrt.profiles.bounds import ExtentBounds


# Bounds of inputs that are impossible are not the fault of the first node that they affect.
_PROFILE = re.compile(r"\bvalues for profile \d+ violate|\bprofile \d+ is not valid", re.IGNORECASE)
_FITTING = "give other bounds with --profile: some nets take multiples of an extent only"


class OpenExtents(EngineError):
    """Raised if bounds for an engine are missing or impossible."""


@dataclass(frozen=True)
class BuildSettings:
    """Inputs of an engine build besides the region.

    Attributes:
        name: The name of the network. It is written into the engine; an unnamed network gets a number, so that two
            builds of the same engine would differ.
        target: The target GPUs; see `dovetail_tensorrt.target`.
        workspace: Bytes; 0 means no limit.
    """

    name: str
    target: str = ANY
    workspace: int = 0


def build(parsed: ParsedModel, profile: Mapping[str, ExtentBounds], settings: BuildSettings) -> Any:
    """Build a serialized engine, which supports the buffer protocol.

    Args:
        parsed: A parsed region.
        profile: The bounds of its inputs.
        settings: Further settings.

    Raises:
        OpenExtents: The profile lacks an input, or is impossible.
        EngineError: The builder rejects the network; names the node if it is known.
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


def _profile(parsed: ParsedModel, given: Mapping[str, ExtentBounds]) -> Any:
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
    """Return the single layer that a message names, which has its node's name; empty for none or several."""
    names = {layer.name for layer in parsed.verdict.layers if layer.name and layer.name in text}
    longest = [name for name in names if not any(name != other and name in other for other in names)]
    return longest[0] if len(longest) == 1 else ""


class ParserRefusal(EngineError):
    """Raised if the parser rejects a region.

    Attributes:
        errors: All of its errors.
    """

    def __init__(self, title: str, errors: Sequence[ParserError]):
        first = errors[0]
        super().__init__(f"the parser of {title} refuses {first}", node=first.node)
        self.errors = tuple(errors)


def make_engine(
    region: Model,
    library: Library,
    profile: Mapping[str, ExtentBounds],
    target: str,
    workspace: int,
    folder: Path,
    content: str = "",
    note: Callable[[str], None] = lambda text: None,
) -> EngineFile:
    """Write the engine of a region and its description into `folder`.

    Args:
        region: The region as a separate model, with its nodes.
        library: The TensorRT that builds it.
        profile: The bounds of its inputs.
        target: The target GPUs; see `dovetail_tensorrt.target`.
        workspace: Bytes; 0 means no limit.
        folder: The target folder.
        content: The digest of the region, if known.
        note: Receives messages for the user.

    Raises:
        ParserRefusal: The parser rejects the region.
        EngineError: The builder rejects the region.
    """
    content = content or content_digest(region)
    inputs = [name_of(value) for value in region.graph.inputs if not value.is_initializer()]
    outputs = list(map(name_of, region.graph.outputs))
    points = {name: list(profile[name].texts()) for name in inputs if name in profile}

    def new(into: Path) -> EngineFile:
        parsed = parse(region, library)
        if not parsed.verdict.ok:
            raise ParserRefusal(library.title, parsed.verdict.errors)
        engine = build(parsed, profile, BuildSettings(content, target, workspace))
        with replacing_file(into / ENGINE) as file:
            file.write(engine)
        made = EngineFile(
            content, library.sdk, library.version, target, workspace, points, _ports(inputs, parsed.verdict.inputs),
            _ports(outputs, parsed.verdict.outputs), file_sha256(into / ENGINE), (into / ENGINE).stat().st_size,
        )  # fmt: skip
        write_engine(into, made)
        return made

    def is_wanted(made: EngineFile) -> bool:
        names = [one.name for one in made.inputs], [one.name for one in made.outputs]
        wanted = (content, library.sdk, library.version, target, workspace, points, set(inputs), set(outputs))
        found = (made.content, made.sdk, made.version, made.target, made.workspace, made.profile)
        return found == wanted[:6] and all(set(some) <= all_ for some, all_ in zip(names, wanted[6:], strict=True))

    key = cache_key(content, library.sdk, library.version, target, workspace, points, inputs, outputs)
    return engine_from_cache(key, folder, new, is_wanted, note)[0]


def _ports(names: Sequence[str], tensors: Sequence[NetworkTensor]) -> tuple[EnginePort, ...]:
    by_name = {tensor.name: tensor for tensor in tensors}
    found = (by_name[name] for name in names if name in by_name)
    return tuple(EnginePort(one.name, one.type, one.shape, one.is_shape) for one in found)


_MOST_NODES = 5000


def last_of_unbuildable(region: Model, library: Library, profile: Mapping[str, ExtentBounds], target: str) -> str:
    """Return the last node of the shortest prefix of a region that fails to build; empty if none is found.

    Builders may fail with an internal assertion that names no node. The last node of the shortest failing prefix can be
    placed elsewhere; finding it takes log2 n builds.

    Args:
        region: A region that does not build.
        library: The TensorRT that builds it.
        profile: The bounds of its inputs.
        target: The target GPUs.
    """
    nodes = list(region.graph)
    if len(nodes) > _MOST_NODES:
        return ""

    def builds(number: int) -> bool:
        head, *_ = given_regions(region.graph, [nodes[:number], nodes[number:]])
        try:
            parsed = parse(extract(region, head), library)
            if parsed.verdict.ok:
                build(parsed, profile, BuildSettings("part", target))
        except EngineError:
            return False
        return parsed.verdict.ok

    built, failing = 0, len(nodes)
    try:
        while failing - built > 1:
            middle = (built + failing) // 2
            if builds(middle):
                built = middle
            else:
                failing = middle
    except DovetailError:  # a value between the parts is untyped
        return ""
    return nodes[failing - 1].name or ""
