"""The processes in which nodes are tried: one runs the engine, another one the references.

Each is the worker of a `dovetail.plugin.Tool`, so that what crashes or hangs costs one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import BackendChoice
    from dovetail.plugin import Executor, PluginSet
    from dovetail_runtime.engines import GuardedEngine
    from dovetail_runtime.guarded_session import GuardedSession


_SLOW = 1 << 15  # elements that onnx's reference computes in reasonable time


class EngineUnderTest(NamedTuple):
    """What nodes are tried on.

    Attributes:
        plugins: The plugins.
        engine: The engine.
        emitting: The backend whose emitters compile every node first; None if the engine loads nodes.
    """

    plugins: PluginSet
    engine: GuardedEngine
    emitting: BackendChoice | None


def begin(engine: str, chosen: Mapping[str, str], backend: str = "") -> EngineUnderTest:
    """Create the engine.

    Args:
        engine: Its name.
        chosen: The options of the backend that it runs for.
        backend: The backend whose emitters compile every node before the engine loads it, or the path of its file;
            empty if the engine loads nodes.
    """
    import dovetail
    from dovetail.passes import BackendChoice
    from dovetail.plugin.loading import make_engine, use_file
    from dovetail_runtime.engines import GuardedEngine

    plugins = dovetail.load_plugins()
    made = GuardedEngine(make_engine(plugins.registry, engine), "", dict(chosen))
    emitting = BackendChoice.parse(use_file(plugins.registry, backend)) if backend else None
    return EngineUnderTest(plugins, made, emitting)


def started(tested: EngineUnderTest) -> str:
    """Return the name of the engine, which was created for this call."""
    return tested.engine.name


def run_on_engine(tested: EngineUnderTest, model: bytes, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Load and run a model of one node.

    Returns:
        `stage` (`load` or `run` where it failed, else `done`), the `reason`, and the `outputs`.
    """
    import dovetail
    import onnx

    stage = "load"
    try:
        session = _loaded(dovetail.open(onnx.ModelProto.FromString(model), tested.plugins), tested)
        stage = "run"
        outputs = session.run({name: unpacked(value) for name, value in inputs.items()})
    except DovetailError as error:
        return {"stage": stage, "reason": error.message}
    return {"stage": "done", "reason": "", "outputs": {name: packed(value) for name, value in outputs.items()}}


def _loaded(model: Model, tested: EngineUnderTest) -> GuardedSession | Executor:
    """Load a model on the engine; if its backend compiles ahead of time, run the emitters first, as `compile` does.

    Raises:
        DovetailError: An emitter or the engine refuses the model.
    """
    from dovetail.passes import Context, Pipeline, Request
    from dovetail.planning import HOST, Placement, set_placement
    from dovetail.plugin import RegionModel
    from dovetail_runtime.engines import engines_in
    from dovetail_runtime.executor import RegionExecutor

    emitting = tested.emitting
    if emitting is None:
        return tested.engine.load(RegionModel(model), {"threads": 1})
    registry = tested.plugins.registry
    ctx = Context(Request.of(emitting), plugins=tested.plugins)
    ctx.load_backends()
    for node in model.graph:
        set_placement(node, Placement(emitting.name))
    try:
        Pipeline.parse("emit-artifacts", registry).run(model, ctx)
    except DovetailError as error:
        refused = ctx.refusals.nodes(emitting.name).values()
        raise DovetailError(next((one.why for one in refused), error.message)) from error
    engines = {emitting.name: [tested.engine], HOST: engines_in(ctx)[HOST]}  # the host runs conversions at the borders
    return RegionExecutor(model, engines, {"threads": 1}, artifacts=ctx.outcome.artifacts)


def run_reference(model: bytes, inputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Run a model on a reference: `onnxruntime`, without optimization, or `onnx`.

    Raises:
        Exception: It does not compute the model; exceptions of both are of various types.
    """
    feeds = {key: unpacked(value) for key, value in inputs.items()}
    results = _on_onnxruntime(model, feeds) if name == "onnxruntime" else _on_onnx(model, feeds)
    return {key: packed(value) for key, value in results.items()}


def _on_onnxruntime(model: bytes, feeds: Mapping[str, Any]) -> dict[str, Any]:
    from dovetail_onnx.native_runtime import new_session, onnx_runtime

    runtime = onnx_runtime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = new_session(model, options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _on_onnx(model: bytes, feeds: Mapping[str, Any]) -> dict[str, Any]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    if sum(np.size(value) for value in feeds.values()) > _SLOW:
        raise ValueError("too large for onnx's reference")
    proto = onnx.ModelProto.FromString(model)
    names = [output.name for output in proto.graph.output]
    with np.errstate(all="ignore"):
        return dict(zip(names, ReferenceEvaluator(proto).run(names, dict(feeds)), strict=True))


def packed(value: Any) -> Any:
    """Return a value as it is sent between processes: numbers as arrays, texts and sequences as plain data."""
    if value is None:
        return None
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return {"sequence": [packed(item) for item in value]}
    array = np.asarray(value)
    if array.dtype.kind not in "OSU":
        return array
    texts = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel().tolist()]
    return {"texts": texts, "shape": list(array.shape)}


def unpacked(value: Any) -> Any:
    """Return what `packed` was given."""
    if isinstance(value, dict):
        if "sequence" in value:
            return [unpacked(item) for item in value["sequence"]]
        return np.array(value["texts"], dtype=object).reshape(value["shape"])
    return value
