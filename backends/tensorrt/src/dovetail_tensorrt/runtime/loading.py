"""Loading of a region's engine: the one compiled ahead of time if it matches, else one built just in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.ir import name_of
from dovetail.plugin import EngineError, TemporaryFolder

from dovetail_tensorrt.cache import ENGINE, EngineFile, read_engine
from dovetail_tensorrt.digest import content_digest
from dovetail_tensorrt.inlined import call_in, inlined
from dovetail_tensorrt.libraries import make_logger
from dovetail_tensorrt.making import make_engine
from dovetail_tensorrt.profiles.bounds import ExtentBounds
from dovetail_tensorrt.profiles.of_region import recorded_profile, region_profile
from dovetail_tensorrt.target import fits, target_of
from dovetail_tensorrt.tensorrt_engine import recorded_workspace

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import RegionModel

    from dovetail_tensorrt.libraries import Library


@dataclass(frozen=True)
class LoadedEngine:
    """An engine in memory.

    Attributes:
        engine: TensorRT's object.
        made: Its description.
        region: The region with its nodes.
        call: The call of the region's function; None without one.
        logger: The logger with TensorRT's messages.
        runtime: The runtime that deserialized it, which must live as long.
        notes: Messages about why it was not compiled ahead of time.
    """

    engine: Any
    made: EngineFile
    region: Model
    call: ir.Node | None
    logger: Any
    runtime: Any
    notes: tuple[str, ...] = ()


def load_engine(region: RegionModel, library: Library, capability: tuple[int, int]) -> LoadedEngine:
    """Load the engine of a region.

    Args:
        region: The region, with its artifact if there is one.
        library: The TensorRT that runs it.
        capability: The compute capability of the GPU.

    Raises:
        EngineError: The engine file is missing or does not match, and none can be built; the message gives both
            reasons.
    """
    call, nodes = call_in(region.model), inlined(region.model)
    content = content_digest(nodes)
    logger = make_logger(library.trt)
    runtime = library.trt.Runtime(logger)
    why = ""
    said: list[str] = []
    if region.artifact is not None:
        try:
            made = _fitting(region.artifact, content, library, capability)
            engine = _deserialized(region.artifact / ENGINE, runtime, logger)
            return LoadedEngine(engine, made, nodes, call, logger, runtime)
        except EngineError as error:
            why = error.message
    with TemporaryFolder("tensorrt") as folder:
        try:
            made = make_engine(
                nodes, library, _profile(nodes, call), target_of(library, "", capability),
                recorded_workspace(call), folder, content, said.append,
            )  # fmt: skip
            engine = _deserialized(folder / ENGINE, runtime, logger)
        except EngineError as error:
            if why:
                error.message = f"{why}; and no other can be built: {error.message}"
            raise
    notes = (*([f"{why}; another one was built for this run"] if why else ()), *said)
    return LoadedEngine(engine, made, nodes, call, logger, runtime, notes)


def _fitting(folder: Path, content: str, library: Library, capability: tuple[int, int]) -> EngineFile:
    """Return the description of the engine in a folder, after checking that it is for the region and this GPU.

    Raises:
        EngineError: It is damaged, of another region, of another SDK, or for another GPU.
    """
    made = read_engine(folder)
    file = folder / ENGINE
    if made.content != content:
        raise EngineError(
            f"{file} is the engine of another model: its content is {made.content[:12]}, not {content[:12]}"
        )
    if (made.sdk, made.version) != (library.sdk, library.version):
        raise EngineError(f"{file} was built by {made.sdk} {made.version}, and {library.title} is here")
    if not fits(made.target, capability):
        raise EngineError(f"{file} is for {made.target}, and the GPU here is sm{capability[0]}{capability[1]}")
    return made


def _deserialized(path: Path, runtime: Any, logger: Any) -> Any:
    engine = runtime.deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        said = [text for kind, text in logger.taken() if kind == "error"]
        raise EngineError(f"{path.name} is refused by TensorRT: {said[0] if said else 'it gives no reason'}")
    return engine


def _profile(nodes: Model, call: ir.Node | None) -> Mapping[str, ExtentBounds]:
    """Return the bounds of the inputs: those recorded in the call, else those that the region declares.

    Raises:
        EngineError: Extents are open, and have no bounds.
    """
    inputs = [name_of(value) for value in nodes.graph.inputs if not value.is_initializer()]
    if call is not None and (recorded := recorded_profile(call, inputs)):
        return recorded
    profile = region_profile(nodes, None, None)
    if profile.lost:
        lost = next(name for name in inputs if name not in profile.bounds)
        raise EngineError(
            f"the extents of '{lost}' are open, and nothing says their bounds",
            "compile with --profile, or with --data that has the smallest and the largest shapes",
        )
    return profile.bounds
