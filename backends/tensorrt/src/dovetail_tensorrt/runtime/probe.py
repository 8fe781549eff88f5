"""Whether a TensorRT runs on the GPU that is here."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from dovetail_tensorrt.libraries import RTX
from dovetail_tensorrt.logger import make_logger
from dovetail_tensorrt.parser import LOCK

if TYPE_CHECKING:
    from dovetail_tensorrt.libraries import Library


@cache
def why_not_here(library: Library, capability: tuple[int, int]) -> str:
    """Why the engines of a TensorRT do not run on a GPU of this compute capability; empty if they do.

    TensorRT-RTX lists the GPUs that it is made for, among them none for data centres. On one that is not listed, a
    network of one layer is built and loaded, once per process, rather than every region of every model.
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
