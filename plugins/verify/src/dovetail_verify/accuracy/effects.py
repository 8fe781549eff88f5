"""What the error of single nodes does to the outputs of the model.

The exact model runs with the error of one node added to its result; everything else stays exact. All nodes are asked of
one copy of the model: it has an input for the error of each, which is zero for all but one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir.fresh_names import FreshNames
from dovetail.ir.required import dtype_of, name_of
from dovetail.ir.types import float_name
from dovetail_runtime.data.batches import batches, fitted
from dovetail_transforms.regions.regions import slices

from dovetail_verify.accuracy.error_sums import ErrorSums

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.ir.model import Model
    from dovetail_runtime.guard import GuardedEngine

    from dovetail_verify.accuracy.streamed import SideBySide


def effects_at_outputs(
    original: Model,
    exact: Model,
    names: Sequence[str],
    beside: SideBySide,
    engines: Mapping[str, Sequence[GuardedEngine]],
    data: object,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, dict[str, ErrorSums]]:
    """The error of every float output if one node alone is low.

    A batch takes a run of the model per node, and two more.

    Args:
        original: The model, for its inputs.
        exact: The model with everything high.
        names: The nodes.
        beside: Computes what a node makes of exact inputs.
        engines: The host's engines.
        data: See `dovetail_runtime.data.sources.read_data`.
        progress: Told after every batch.

    Returns:
        By node and output.

    Raises:
        DovetailError: The model cannot be run.
    """
    from dovetail_runtime.executor import Executor

    work, inputs = _with_errors(exact, names)
    outputs = [name_of(value) for value in work.graph.outputs if float_name(value)]
    executor = Executor(work, engines, regions=slices(work.graph))
    found: dict[str, dict[str, ErrorSums]] = {name: {output: ErrorSums() for output in outputs} for name in inputs}
    for number, (feeds, _) in enumerate(batches(original, data, exact), start=1):
        feeds = fitted(exact, feeds)
        errors = {
            alone.node: _difference(array, alone.array) for alone, array in beside.alone(feeds, frozenset(inputs))
        }
        zeros = {name: np.zeros((), dtype) for name, dtype in inputs.values()}
        wanted = executor.run({**feeds, **zeros})
        for node, error in errors.items():
            name, dtype = inputs[node]
            given = executor.run({**feeds, **zeros, name: error.astype(dtype)})
            for output in outputs:
                found[node][output].add(wanted[output], given[output])
        if progress:
            progress("layers, at the outputs", number, 0)
    return found


def _with_errors(exact: Model, names: Sequence[str]) -> tuple[Model, dict[str, tuple[str, np.dtype]]]:
    """A copy that adds an input to the first float result of each node; name and type of this input by node."""
    import onnx_ir as ir

    from dovetail_verify.accuracy.watched import first_float

    work = exact.clone()
    fresh = FreshNames.of(work.graph)
    inputs = {}
    wanted = set(names)
    for node in list(work.graph):
        value = first_float(node) if node.name in wanted else None
        if value is None:
            continue
        error = ir.Value(name=fresh.fresh(f"{value.name}/error"), type=value.type, shape=None)
        work.graph.inputs.append(error)
        inputs[name_of(node)] = name_of(error), dtype_of(value).numpy()
        uses, is_output = list(value.uses()), value.is_graph_output()
        total = ir.Value(name=fresh.fresh(f"{value.name}/exact"), type=value.type, shape=value.shape)
        added = ir.node("Add", [value, error], outputs=[total], name=total.name)
        work.graph.insert_after(node, added)
        for user, index in uses:
            user.replace_input_with(index, total)
        if is_output:
            # An output keeps its name, so the value in front of it takes another.
            value.name, total.name = total.name, value.name
            work.graph.outputs[:] = [total if one is value else one for one in work.graph.outputs]
    work.touch()
    return work, inputs


def _difference(exact: np.ndarray, given: np.ndarray) -> np.ndarray:
    """What has to be added to `exact`; nothing where that is no number."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.asarray(given, np.float64) - np.asarray(exact, np.float64)
    return np.where(np.isfinite(difference), difference, 0)
