"""Baseline of a precision search: all low, all high, and the effect of each node's error on the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import float_name, name_of
from dovetail.planning import given_regions, operator_name
from dovetail_runtime.data.batches import batches, fitted
from dovetail_runtime.nested_graphs import with_nodes

from dovetail_verify.accuracy.groups import Groups, RaisableNodes, locked_nodes
from dovetail_verify.accuracy.per_node_errors import ErrorSums
from dovetail_verify.accuracy.streamed import Streamed, stream
from dovetail_verify.accuracy.watched import first_float

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.planning import Region
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

    A batch takes one run of the model, and one of what is behind each node.

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

    regions, ends = _cut_behind(exact.graph, names)
    outputs = [name_of(value) for value in exact.graph.outputs if float_name(value)]
    executor = RegionExecutor(exact, engines, {"share_weights": True}, regions=regions)
    found: dict[str, dict[str, ErrorSums]] = {name: {output: ErrorSums() for output in outputs} for name in ends}
    for number, (feeds, _) in enumerate(islice(batches(original, data, exact), most), start=1):
        feeds = fitted(exact, feeds)
        low = {alone.node: alone.array for alone, _ in side_by_side.alone(feeds, frozenset(ends))}
        wanted: dict[str, np.ndarray] = {}
        given: dict[str, dict[str, np.ndarray]] = {}
        for runner, values in executor.steps(feeds):
            wanted |= {output: values[output] for output in outputs if output in values}
            node = name_of(runner.region.nodes[-1])
            array = values.get(ends.get(node, ""))
            if node in low and array is not None:
                with_error = array + _difference(array, low[node]).astype(array.dtype)
                given[node] = executor.rest(runner, {**values, ends[node]: with_error})
        for node, results in given.items():
            for output in wanted:
                found[node][output].add(wanted[output], results.get(output, wanted[output]))
        if progress:
            progress("layers, at the outputs", number, 0)
    return found


def _cut_behind(graph: ir.Graph, names: Sequence[str]) -> tuple[list[Region], dict[str, str]]:
    """Return regions that end with the named nodes, and the name of each one's first float result.

    No region ends where a value without a type would cross its end.
    """
    wanted = set(names)
    parts: list[list[ir.Node]] = [[]]
    for node in graph:
        parts[-1].append(node)
        if node.name in wanted and first_float(node) is not None:
            parts.append([])
    parts = [part for part in parts if part]
    regions = given_regions(graph, parts)
    made_in = {value: region.index for region in regions for value in region.outputs}
    crossed = {
        end
        for region in regions
        for value in region.inputs
        if value.type is None and value in made_in
        for end in range(made_in[value], region.index)
    }
    joined: list[list[ir.Node]] = []
    for index, part in enumerate(parts):
        if index - 1 in crossed:
            joined[-1].extend(part)
        else:
            joined.append(part)
    ends = {name_of(part[-1]): part[-1] for part in joined}
    values = {name: value for name, node in ends.items() if name in wanted and (value := first_float(node)) is not None}
    return given_regions(graph, joined), {name: name_of(value) for name, value in values.items()}


def _difference(exact: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return the difference to add to `exact`; zero where it is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.asarray(given, np.float64) - np.asarray(exact, np.float64)
    return np.where(np.isfinite(difference), difference, 0)
