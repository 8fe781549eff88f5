"""The engine `tensorrt`: runs regions on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING

from dovetail.ir import constant_of, name_of
from dovetail.plugin import Availability, Engine, EngineError, Reads, RegionModel

from dovetail_tensorrt.libraries import RTX, NoLibrary, library, make_logger, state
from dovetail_tensorrt.parser import LOCK
from dovetail_tensorrt.profiles.bounds import bounds_from
from dovetail_tensorrt.runtime.cuda import NoDevice, check_driver, open_cuda
from dovetail_tensorrt.runtime.loading import LoadedEngine, load_engine
from dovetail_tensorrt.runtime.session import READ_TYPES, EngineBinding, TensorRTSession

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model

    from dovetail_tensorrt.libraries import Library


@cache
def why_not_here(library: Library, capability: tuple[int, int]) -> str:
    """Return why a TensorRT does not support a GPU of this compute capability; empty if it does.

    TensorRT-RTX lists its supported GPUs, which exclude those for data centers. On an unlisted GPU, a single-layer
    network is built and loaded once per process, instead of every region of every model.
    """
    listed = getattr(library.trt, "ComputeCapability", None)
    name = f"SM{capability[0]}{capability[1]}"
    if library.sdk != RTX or listed is None or hasattr(listed, name) or _runs(library):
        return ""
    return f"{library.title} is not made for the GPU here ({name.lower()})"


def _runs(library: Library) -> bool:
    trt = library.trt
    with LOCK:
        logger = make_logger(trt)
        builder = trt.Builder(logger)
        network = builder.create_network(0)
        value = network.add_input("x", trt.DataType.FLOAT, (1,))
        network.mark_output(network.add_identity(value).get_output(0))
        plan = builder.build_serialized_network(network, builder.create_builder_config())
        engine = None if plan is None else trt.Runtime(logger).deserialize_cuda_engine(plan)
        return engine is not None and engine.create_execution_context() is not None


class TensorRT(Engine):
    """Runs engines that were compiled ahead of time, and builds those that do not match this machine."""

    name = "tensorrt"
    reads = Reads(opset=24, ir_version=13, types=READ_TYPES)
    """The opsets and types that its parser accepts."""
    loads_artifacts = True

    def available(self) -> Availability:
        """Check that there is a GPU with a driver, and a TensorRT that supports it."""
        try:
            check_driver()
        except NoDevice as error:
            return Availability(False, f"{error.message}; {state()}")
        try:
            found = library()
            why = why_not_here(found, open_cuda(found.cudart).capability())
        except (NoLibrary, NoDevice) as error:
            return Availability(False, f"{error.message} ({error.hint})" if error.hint else error.message)
        return Availability(not why, why)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> TensorRTSession:
        """Load a region; the options are ignored.

        Raises:
            EngineError: The engine file does not match, and no new engine can be built.
        """
        found = library()
        try:
            cuda = open_cuda(found.cudart)
            loaded = load_engine(region, found, cuda.capability())
            inputs, outputs = _bindings(loaded)
            nodes = [node.name or "" for node in (loaded.region.graph if loaded.call is None else [loaded.call])]
            passed = _passed(region.model, {binding.value for binding in outputs})
            return TensorRTSession(
                loaded.engine,
                found.trt,
                cuda,
                inputs,
                outputs,
                nodes,
                (loaded.logger, loaded.runtime),
                loaded.notes,
                passed,
            )
        except NoDevice as error:
            raise EngineError(f"{self.name}: {error.message}", error.hint) from error


def _bindings(loaded: LoadedEngine) -> tuple[list[EngineBinding], list[EngineBinding]]:
    """Match values to tensors by position, because values may have been renamed since the engine was built."""
    made, graph = loaded.made, loaded.region.graph
    read = [name_of(value) for value in graph.inputs if not value.is_initializer()]
    given = [name_of(value) for value in graph.outputs]
    if (len(read), len(given)) != (len(made.inputs), len(made.outputs)):
        raise EngineError("the engine has other inputs or outputs than the region", "compile the model again")
    profile = {name: bounds_from(name, points) for name, points in made.profile.items()}
    inputs = [
        EngineBinding(value, port.name, profile.get(port.name)) for value, port in zip(read, made.inputs, strict=True)
    ]
    return inputs, [EngineBinding(value, port.name) for value, port in zip(given, made.outputs, strict=True)]


def _passed(model: Model, computed: Collection[str]) -> dict[str, str | np.ndarray]:
    """Return the model outputs that are inputs or constants."""
    found: dict[str, str | np.ndarray] = {}
    for value in model.graph.outputs:
        name = name_of(value)
        if name not in computed:
            found[name] = name if value.is_graph_input() else constant_of(value).numpy()
    return found
