"""Run a model on data and show values to whoever wants to see them, batch by batch and part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dovetail_regions.regions import given_regions
from dovetail_runtime.data.batches import batches
from dovetail_runtime.engines import engines_of
from dovetail_runtime.executor import Executor

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["See", "observe"]

_PART = 32  # nodes; the values of one part are in memory at the same time

See = Callable[["np.ndarray"], None]


def observe(model: Model, wanted: Mapping[str, list[See]], ctx: Context) -> int:
    """Run `model` on the data of the request, on the host.

    Memory holds one batch, and of it the values of one part and those that later parts read.

    Args:
        model: A float model; it is not changed.
        wanted: By name of a value of the main graph, who wants to see it.
        ctx: The context of the run.

    Returns:
        The number of batches.

    Raises:
        DovetailError: The data does not fit, or no engine of the host runs the model.
    """
    work = model.clone()
    nodes = list(work.graph)
    known = {id(value) for value in work.graph.outputs}
    for node in nodes:
        for value in node.outputs:
            if value.name in wanted and id(value) not in known:
                work.graph.outputs.append(value)
    parts = [nodes[start : start + _PART] for start in range(0, len(nodes), _PART)]
    engines = engines_of([ctx.host], ctx.registry)
    executor = Executor(work, engines, {"optimise": "none"}, regions=given_regions(work.graph, parts))
    number = 0
    for number, (feeds, _) in enumerate(batches(model, ctx.request.data), start=1):
        for name, array in feeds.items():
            _show(wanted.get(name, ()), array)
        for done, (runner, values) in enumerate(executor.steps(feeds), start=1):
            if ctx.progress:
                ctx.progress(f"calibrate, batch {number}", done, len(executor.runners))
            for name in runner.outputs:
                _show(wanted.get(name, ()), values[name])
    return number


def _show(wanted: list[See], array: np.ndarray) -> None:
    for see in wanted:
        see(array)
