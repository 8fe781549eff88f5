"""Functions that run a result and its original."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import CompiledModel


def reference_runner(
    model: Model, ctx: Context, options: Mapping[str, object] | None = None
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return a function that runs `model` on the host's engines, in its own types.

    Args:
        model: The model.
        ctx: The context, with the host.
        options: Options of the engines.
    """
    from dovetail_runtime.engines import engines_of
    from dovetail_runtime.executor import RegionExecutor
    from dovetail_runtime.unpartitioned import slices

    runnable = model.runnable()
    return RegionExecutor(runnable, engines_of([ctx.host], ctx.registry), options, regions=slices(runnable.graph)).run


def source_runner(model: Model, ctx: Context) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return `reference_runner` of the source model of a compilation, loaded once unless it is large."""
    kept = ctx.kept.get(_Source)
    if kept is not None and kept.model is model:
        return kept.run
    run = reference_runner(model, ctx)
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


_KEPT_WEIGHTS = 1 << 28  # bytes; a session of a larger source is not held while the result is made


def runner(compiled: CompiledModel) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Return a function that runs a result on its original's data."""
    from dovetail_runtime.data.batches import fitted
    from dovetail_runtime.data.quantized_ends import dequantized_outputs, quantized_inputs

    model = compiled.model
    return lambda feeds: dequantized_outputs(model, compiled.run(fitted(model, quantized_inputs(model, feeds))))


@contextmanager
def searching() -> Iterator[None]:
    """Mark what is compiled inside of the block as trials of a search; see `dovetail.plugin.Emitter.matches_plan`."""
    from dovetail.plugin.loading import TRIAL

    token = TRIAL.set(True)
    try:
        yield
    finally:
        TRIAL.reset(token)
