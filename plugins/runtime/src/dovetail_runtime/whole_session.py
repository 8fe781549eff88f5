"""The one session of ONNX Runtime that runs a whole result, for callers that use its interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import name_of

from dovetail_runtime.executor import RegionExecutor

if TYPE_CHECKING:
    import onnxruntime as ort
    from dovetail.plugin import CompiledModel


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
    executor, graph = compiled.executor(), compiled.model.graph
    joint = executor.joint if isinstance(executor, RegionExecutor) else None
    if joint is None and len(executor.runners) != 1:
        return None
    session = joint or executor.runners[0]
    is_last = joint is None and executor.runners[0].is_last
    native = session.native
    if native is None:
        return None
    outputs = [name_of(value) for value in graph.outputs]
    inputs = {name_of(value) for value in graph.inputs if not value.is_initializer()}
    same = [value.name for value in native.get_outputs()] == outputs
    if not same or {value.name for value in native.get_inputs()} != inputs:
        return None
    return WholeSession(native, is_last)
