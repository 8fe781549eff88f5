"""The baseline of a search for precisions: everything low, everything high, and every node in one streamed run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.planning.identity import operator_name

from dovetail_verify.accuracy.groups import Groups
from dovetail_verify.accuracy.streamed import Streamed, stream
from dovetail_verify.accuracy.units import Candidates, locked_nodes

if TYPE_CHECKING:
    from dovetail.passes.request import Request
    from dovetail_runtime.guard import GuardedEngine

    from dovetail_verify.accuracy.trials import Trial, Trials


@dataclass(frozen=True)
class Baseline:
    """What a first baseline found.

    Attributes:
        low: The request as it is.
        high: The request with everything raised that may be.
        locked: Nodes that may not be raised, with what keeps them as they are.
        operators: The operators of those.
        streamed: What every node does to the accuracy by itself.
        groups: All nodes that raising changes, as one group.
    """

    low: Trial
    high: Trial
    locked: Mapping[str, str]
    operators: Mapping[str, str]
    streamed: Streamed
    groups: Groups


def measure_baseline(
    trials: Trials, request: Request, engines: Mapping[str, Sequence[GuardedEngine]], by_nodes: bool = False
) -> Baseline:
    """Take it, in two runs and one over single nodes.

    Args:
        trials: Compiles and runs the request.
        request: The request.
        engines: The host's engines.
        by_nodes: Count every node as the same work, and a conversion as that of a node.

    Raises:
        DovetailError: The request cannot be compiled or run.
    """
    low = trials.run(())
    locked = locked_nodes(low.result.model, request)
    operators = {
        node.name: operator_name(node.domain, node.op_type) for node in low.result.model.graph if node.name in locked
    }
    candidates = Candidates(low.result, locked)
    high = trials.run(candidates.names)
    low.result.unload()
    high.result.unload()
    streamed = stream(trials.original, high.result.model, low.result.model, engines, trials.data)
    prior = {name: errors.own.share for name, errors in streamed.errors.items()}
    units = candidates.units(high.result, streamed)
    if by_nodes:
        units = [replace(unit, work=1.0, border=1.0) for unit in units]
    groups = Groups(trials, candidates.names, units, prior)
    return Baseline(replace(low, compiled=None), replace(high, compiled=None), locked, operators, streamed, groups)
