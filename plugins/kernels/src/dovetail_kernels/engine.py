"""The engine `kernels`: runs nodes that have kernels, and delegates the rest of a region to the host's engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dovetail.ir import is_onnx
from dovetail.plugin import Availability, Engine, Reads, RegionModel, SelectiveEngine
from dovetail.plugin.loading import make_engine

from dovetail_kernels.keys import ENGINE, is_copy, is_lowered
from dovetail_kernels.select_kernels import lower_to_kernels

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import Registry
    from dovetail_runtime.program import Instruction, Program

    from dovetail_kernels.kernel_call import KernelSession
    from dovetail_kernels.library import KernelLibrary


_OTHERS = "onnxruntime-cpu"


class KernelEngine(SelectiveEngine):
    """Runs operators with the kernels that plugins register.

    Nodes lowered by `select-kernels` run their kernel. If that pass did not run, as for a source model used as
    reference, kernels of any device are selected here. Nodes without a kernel run on ONNX Runtime, in maximal parts;
    bodies of If, Loop and Scan are prepared once.

    Args:
        registry: Everything that plugins registered.
    """

    name = ENGINE

    def __init__(self, registry: Registry):
        self._registry = registry

    @classmethod
    def of(cls, registry: Registry) -> KernelEngine:
        """Create the engine."""
        return cls(registry)

    def takes(self, node: ir.Node) -> bool:
        """Check whether a kernel is the only implementation of a node."""
        if is_lowered(node):
            return True
        if not len(self._registry.kernel) or is_onnx(node):
            return False
        return bool(self._library().of(node))

    def available(self) -> Availability:
        """Report that the engine is always available."""
        return Availability(True)

    @property
    def reads(self) -> Reads:  # type: ignore[override]  # never set
        """The opsets and types that the engine of the other nodes accepts."""
        return self._others().reads

    def load(self, region: RegionModel, options: Mapping[str, object]) -> KernelSession:
        """Load a region as a program of instructions.

        Raises:
            EngineError: A kernel is not installed, or another engine refuses the rest.
        """
        from dovetail_runtime.program import Program, control_flow, holds

        from dovetail_kernels.kernel_call import KernelSession, device_copy, kernel_call

        library, model = self._library(), region.model
        if not any(is_lowered(node) for node in model.nodes()):
            model = _typed(model)
            lower_to_kernels(model, library, library.nearest_device, lambda node, choice: None)
        others = self._others()

        def make(node: ir.Node, program_of: Callable[[ir.Graph], Program]) -> Instruction | None:
            if is_copy(node):
                return device_copy(node, library)
            if is_lowered(node):
                return kernel_call(node, library)
            return control_flow(node, program_of) if holds(node, is_lowered) else None

        program = Program(model, make, lambda part: others.load(part, options))
        return KernelSession(program)

    def _library(self) -> KernelLibrary:
        from dovetail_kernels.library import kernels_of

        return kernels_of(self._registry)

    def _others(self) -> Engine:
        return make_engine(self._registry, _OTHERS)


def _typed(model: Model) -> Model:
    """Copy a model, with value types inferred from its inputs."""
    import onnx
    from dovetail_onnx.skeleton import skeleton_of

    copy = model.clone()
    skeleton = skeleton_of(copy)
    skeleton.proto = onnx.shape_inference.infer_shapes(skeleton.proto, data_prop=True)
    copy.rebuild(skeleton)
    return copy
