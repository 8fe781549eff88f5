"""Functions that run a result and its original."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from dovetail.errors import DovetailError
from dovetail.plugin.loading import artifact_of

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import CompiledModel

T = TypeVar("T")

_INTEGERS = "integer-arithmetic"  # the name of the pass


def reference_runner(
    model: Model, ctx: Context, options: Mapping[str, object] | None = None
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return a function that runs `model` on the host's engines, in its own types.

    Where they refuse it, it runs without the types that it declares of values between nodes: a source may declare wrong
    ones, which `normalize` corrects in a result.

    Args:
        model: The model.
        ctx: The context, with the host.
        options: Options of the engines.
    """
    from dovetail_runtime.engines import engines_of
    from dovetail_runtime.executor import RegionExecutor
    from dovetail_runtime.unpartitioned import slices

    def executor(work: Model) -> RegionExecutor:
        return RegionExecutor(work, engines_of([ctx.host], ctx.registry), options, regions=slices(work.graph))

    runnable = model.runnable()
    declared: RegionExecutor | None = None
    undeclared: RegionExecutor | None = None
    try:
        declared = executor(runnable)
    except DovetailError as error:
        undeclared = _without(error, lambda: executor(_undeclared(runnable)))

    def run(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        nonlocal undeclared
        if undeclared is not None:
            return undeclared.run(feeds)
        assert declared is not None
        try:
            return declared.run(feeds)
        except DovetailError as error:
            other = _without(error, lambda: executor(_undeclared(runnable)))
            found = _without(error, lambda: other.run(feeds))
            undeclared = other
            return found

    return run


def _without(error: DovetailError, attempt: Callable[[], T]) -> T:
    """Return what an attempt without declared types gives; if it fails, too, raise the error of the first attempt."""
    try:
        return attempt()
    except DovetailError:
        raise error from None


def _undeclared(model: Model) -> Model:
    """Return a copy in which results of nodes have no types, unless they are the model's or a body's."""
    work = model.clone()
    for node in work.nodes():
        for value in node.outputs:
            if not value.is_graph_output():
                value.type = value.shape = None
    work.touch()
    return work


def source_runner(model: Model, ctx: Context) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return `reference_runner` of the source model of a compilation, loaded once unless it is large."""
    kept = ctx.kept.get(_Source)
    if kept is not None and kept.model is model:
        return kept.run
    run = reference_runner(model, ctx, {"share_weights": True})
    if weights_within(model, _KEPT_WEIGHTS):
        ctx.kept.put(_Source(model, run))
    return run


@dataclass(frozen=True)
class _Source:
    model: Model
    run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def weights_within(model: Model, limit: int) -> bool:
    """Check whether the weights of a model have at most `limit` bytes."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    return all(size <= limit for size in accumulate(tensor.nbytes for tensor in tensors if tensor is not None))


_KEPT_WEIGHTS = 1 << 30  # bytes; a session of a larger source is not held while the result is made


def runner(compiled: CompiledModel, executor: str = "") -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return a function that runs a result on its original's data, by the executor of that name."""
    from dovetail_runtime.data.batches import fitted
    from dovetail_runtime.data.quantized_ends import dequantized_outputs, quantized_inputs

    model = compiled.model
    return lambda feeds: dequantized_outputs(
        model, compiled.run(fitted(model, quantized_inputs(model, feeds)), executor)
    )


def exact_runner(compiled: CompiledModel, ctx: Context) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return a function that computes what the plan of a result says, the same on any machine.

    The host runs the nodes without its optimizations: products of integers are summed as integers (the pass
    `integer-arithmetic`, if it is installed), and 16-bit floats are rounded where the model has them. Only float32 sums
    depend on the CPU, in their last bits. An engine may fuse and round otherwise. Programs of a vendor, and nodes that
    only an engine knows, are run by their engines, and so is what an engine emulates.

    Args:
        compiled: The result.
        ctx: A context with the host.
    """
    from dovetail_runtime.data.batches import fitted
    from dovetail_runtime.data.quantized_ends import dequantized_outputs, quantized_inputs
    from dovetail_runtime.nested_graphs import with_nodes

    if any(artifact_of(node) for node in compiled.model.nodes()) or any(one.emulates for one in compiled.regions):
        return runner(compiled)
    model = _in_integers(with_nodes(compiled), ctx)
    try:
        run = reference_runner(model, ctx, {"optimize": "none", "share_weights": True})
    except DovetailError:
        return runner(compiled)
    return lambda feeds: dequantized_outputs(model, run(fitted(model, quantized_inputs(model, feeds))))


def _in_integers(model: Model, ctx: Context) -> Model:
    """Return a model whose quantized nodes compute in integers; the model itself if it has none."""
    from dovetail.passes import Context, Request

    made = ctx.registry.pass_.get(_INTEGERS)
    if made is None or not any(node.op_type == "DequantizeLinear" for node in model.graph):
        return model
    work = model.clone()
    return work if made(everywhere=True).run(work, Context(Request(), plugins=ctx.plugins)) else model


_KEPT_OUTPUTS = 1 << 29  # bytes of the original's outputs kept between trials
Feeds = Mapping[str, "np.ndarray"]
Outputs = dict[str, "np.ndarray"]


class CachedOriginal:
    """Runs the original, and caches its outputs by input within a memory limit."""

    def __init__(self, run: Callable[[Feeds], Outputs]):
        self._run = run
        self._known: dict[str, Outputs] = {}
        self._size = 0

    def __call__(self, feeds: Feeds) -> Outputs:
        """Return the outputs of the original for given inputs."""
        # Key the cache by content: batches may come in any order, and a function may return different ones each time.
        if not all(hasattr(array, "dtype") for array in feeds.values()):
            return self._run(feeds)  # sequences have no digest
        from dovetail_runtime.data.sources import data_digest

        key = data_digest(dict(feeds))
        if key in self._known:
            return self._known[key]
        outputs = self._run(feeds)
        size = sum(getattr(array, "nbytes", _KEPT_OUTPUTS) for array in outputs.values())
        if self._size + size <= _KEPT_OUTPUTS:
            self._size += size
            self._known[key] = outputs
        return outputs
