"""Make the engine of a region: from the cache, or parsed and built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of
from dovetail.plugin import EngineError
from dovetail_onnx.files.digests import file_sha256
from dovetail_onnx.files.writing import replacing

from dovetail_tensorrt.builder import BuildSettings, build
from dovetail_tensorrt.cache import cache_key, engine_from_cache
from dovetail_tensorrt.digest import content_digest
from dovetail_tensorrt.engine_file import ENGINE, EngineFile, Port, write_engine
from dovetail_tensorrt.parser import NetworkTensor, ParserError, parse

if TYPE_CHECKING:
    from dovetail.ir.model import Model

    from dovetail_tensorrt.libraries import Library
    from dovetail_tensorrt.profiles.bounds import Bounds


class ParserRefusal(EngineError):
    """The parser does not take a region.

    Attributes:
        errors: All that it says.
    """

    def __init__(self, title: str, errors: Sequence[ParserError]):
        first = errors[0]
        super().__init__(f"the parser of {title} refuses {first}", node=first.node)
        self.errors = tuple(errors)


def make_engine(
    region: Model,
    library: Library,
    profile: Mapping[str, Bounds],
    target: str,
    workspace: int,
    folder: Path,
    content: str = "",
    note: Callable[[str], None] = lambda text: None,
) -> EngineFile:
    """Write the engine of a region, and what describes it, into `folder`.

    Args:
        region: The region as a model of its own, with its nodes.
        library: The TensorRT that builds it.
        profile: The bounds of its inputs.
        target: The GPUs that it is for; see `dovetail_tensorrt.target`.
        workspace: Bytes; 0 for as much as the GPU has.
        folder: A folder.
        content: The digest of the region, where it is known.
        note: Told what the user should know.

    Raises:
        ParserRefusal: The parser refuses the region.
        EngineError: The builder refuses it.
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
        with replacing(into / ENGINE) as file:
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


def _ports(names: Sequence[str], tensors: Sequence[NetworkTensor]) -> tuple[Port, ...]:
    by_name = {tensor.name: tensor for tensor in tensors}
    found = (by_name[name] for name in names if name in by_name)
    return tuple(Port(one.name, one.type, one.shape, one.is_shape) for one in found)
