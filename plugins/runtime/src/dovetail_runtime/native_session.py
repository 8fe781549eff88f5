"""Sessions that pass a region to one session of ONNX Runtime, for callers that speak its interface."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import dtype_of, name_of
from dovetail.plugin import Session

from dovetail_runtime.serialize import value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import onnxruntime as ort
    from dovetail.compiler import CompiledModel

    from dovetail_runtime.region_runner import RegionRunner


class OnnxRuntimeBacked(Session):
    """Base class of sessions that hand every run, unchanged, to one session of ONNX Runtime."""

    @property
    @abstractmethod
    def native(self) -> ort.InferenceSession | None:
        """The session of ONNX Runtime; None if inputs or outputs are converted on the way.

        Its inputs and outputs have the names of the region's.
        """


class WholeSession(NamedTuple):
    """The one session of ONNX Runtime that runs a whole result.

    Attributes:
        native: The session; its inputs and outputs are those of the model.
        is_last: Whether no other engine would take over if it fails.
    """

    native: ort.InferenceSession
    is_last: bool


def whole_session(compiled: CompiledModel) -> WholeSession | None:
    """Return the session of ONNX Runtime that runs a whole result; None if it takes several, or another engine.

    Engines load the result if they have not done so yet.

    Raises:
        DovetailError: No engine takes a region.
    """
    return _whole_session(compiled.executor().runners, compiled.model.graph)


def _whole_session(runners: Sequence[RegionRunner], graph: ir.Graph) -> WholeSession | None:
    if len(runners) != 1:
        return None
    native = runners[0].native
    if native is None:
        return None
    outputs = [name_of(value) for value in graph.outputs]
    inputs = {name_of(value) for value in graph.inputs if not value.is_initializer()}
    same = [value.name for value in native.get_outputs()] == outputs
    if not same or {value.name for value in native.get_inputs()} != inputs:
        return None
    return WholeSession(native, runners[0].is_last)


class DirectRun:
    """Runs a whole result in its one session of ONNX Runtime, which checks names, ranks and extents itself.

    Small models take less time than the executor's own checks, so these are made only for inputs that fail here.

    Args:
        native: The session.
        graph: The graph; its inputs are tensors of numbers.
    """

    def __init__(self, native: ort.InferenceSession, graph: ir.Graph):
        import numpy as np

        self._array = np.ndarray
        self._native = native
        self._dtypes = {name_of(value): dtype_of(value).numpy() for value in graph.inputs if not value.is_initializer()}
        self._outputs = [name_of(value) for value in graph.outputs]

    def run(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray] | None:
        """Compute all outputs by name; None if an input has to be converted, or anything fails."""
        try:
            for name, dtype in self._dtypes.items():
                array = inputs[name]
                # Another byte order is another dtype, which the session would misread.
                if type(array) is not self._array or array.dtype != dtype:
                    return None
            return dict(zip(self._outputs, self._native.run(self._outputs, inputs), strict=True))
        except Exception:  # the executor's way finds out why, and says it
            return None


def direct_run(runners: Sequence[RegionRunner], graph: ir.Graph) -> DirectRun | None:
    """Return what runs a whole result in one call of ONNX Runtime; None if that takes more than one call."""
    whole = _whole_session(runners, graph)
    fed = [value for value in graph.inputs if not value.is_initializer()]
    if whole is None or not all(value_type(value) not in ("", "string") for value in fed):
        return None
    return DirectRun(whole.native, graph)
