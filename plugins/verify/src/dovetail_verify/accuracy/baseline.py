"""Baseline of a precision search: all low, all high, and the effect of each node's error on the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import FreshNames, dtype_of, float_name, name_of
from dovetail.planning import operator_name
from dovetail_runtime.data.batches import batches, fitted
from dovetail_runtime.nested_graphs import with_nodes
from dovetail_runtime.unpartitioned import slices

from dovetail_verify.accuracy.groups import Groups, RaisableNodes, locked_nodes
from dovetail_verify.accuracy.per_node_errors import ErrorSums
from dovetail_verify.accuracy.streamed import Streamed, stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.plugin import Steps
    from dovetail_runtime.engines import GuardedEngine

    from dovetail_verify.accuracy.streamed import SideBySide
    from dovetail_verify.accuracy.trials import AccuracyTrial, AccuracyTrials


@dataclass(frozen=True)
class Baseline:
    """Measurements before a search.

    Attributes:
        low: The unmodified request.
        high: The request with every raisable node raised.
        locked: Nodes that may not be raised, with the reason.
        operators: Operators of the locked nodes.
        streamed: The error of every node alone.
        groups: All nodes that raising affects, as one group.
    """

    low: AccuracyTrial
    high: AccuracyTrial
    locked: Mapping[str, str]
    operators: Mapping[str, str]
    streamed: Streamed
    groups: Groups


def measure_baseline(
    trials: AccuracyTrials, request: Request, engines: Mapping[str, Sequence[GuardedEngine]], by_nodes: bool = False
) -> Steps[Baseline]:
    """Measure the baseline in two runs, and one run over single nodes.

    Args:
        trials: Trials of the request.
        request: The request.
        engines: The host's engines.
        by_nodes: Assign every node and every conversion the same cost.

    Raises:
        DovetailError: The request cannot be compiled or run.
    """
    low = yield from trials.run(())
    low_nodes = with_nodes(low.result)
    locked = locked_nodes(low_nodes, request)
    operators = {node.name: operator_name(node.domain, node.op_type) for node in low_nodes.graph if node.name in locked}
    candidates = RaisableNodes(low.result, locked)
    high = yield from trials.run(candidates.names, why="everything raised that may be")
    low.result.unload()
    high.result.unload()
    original, data = trials.measured_by.original, trials.measured_by.data
    streamed = stream(original, with_nodes(high.result), low_nodes, engines, data)
    prior = {name: errors.own.share for name, errors in streamed.errors.items()}
    units = candidates.units(high.result, streamed)
    if by_nodes:
        units = [unit._replace(work=1.0, border=1.0) for unit in units]
    groups = Groups(trials, candidates.names, units, low, high, prior)
    return Baseline(replace(low, compiled=None), replace(high, compiled=None), locked, operators, streamed, groups)


def effects_at_outputs(
    original: Model,
    exact: Model,
    names: Sequence[str],
    side_by_side: SideBySide,
    engines: Mapping[str, Sequence[GuardedEngine]],
    data: object,
    progress: Callable[[str, int, int], None] | None = None,
    most: int | None = None,
) -> dict[str, dict[str, ErrorSums]]:
    """Measure the error of every float output with a single node low.

    A batch takes one run of the model per node, and two more.

    Args:
        original: The model, for its inputs.
        exact: The model with everything high.
        names: The nodes.
        side_by_side: Computes the outputs of single nodes on exact inputs.
        engines: The host's engines.
        data: See `dovetail_runtime.data.sources.read_data`.
        progress: Called after every batch.
        most: The most batches to look at; None for all.

    Returns:
        Error sums by node and output.

    Raises:
        DovetailError: The model cannot be run.
    """
    from dovetail_runtime.executor import RegionExecutor

    work, inputs = _with_errors(exact, names)
    outputs = [name_of(value) for value in work.graph.outputs if float_name(value)]
    executor = RegionExecutor(work, engines, {"share_weights": True}, regions=slices(work.graph))
    found: dict[str, dict[str, ErrorSums]] = {name: {output: ErrorSums() for output in outputs} for name in inputs}
    for number, (feeds, _) in enumerate(islice(batches(original, data, exact), most), start=1):
        feeds = fitted(exact, feeds)
        errors = {
            alone.node: _difference(array, alone.array) for alone, array in side_by_side.alone(feeds, frozenset(inputs))
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
    """Copy a model with an input added to each node's first float result; return its name and type by node."""
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
            # A graph output keeps its name, so the value before it is renamed.
            value.name, total.name = total.name, value.name
            work.graph.outputs[:] = [total if one is value else one for one in work.graph.outputs]
    work.touch()
    return work, inputs


def _difference(exact: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return the difference to add to `exact`; zero where it is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.asarray(given, np.float64) - np.asarray(exact, np.float64)
    return np.where(np.isfinite(difference), difference, 0)
