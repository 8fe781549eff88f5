"""Units of execution, single nodes or groups of nodes: their dependencies, and an executable order."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Reads
    from dovetail.planning import Groups


class UnitDependencies(NamedTuple):
    """Dependencies between units of nodes.

    Attributes:
        users: The units that read from each unit.
        waiting: The number of units that each unit reads from.
    """

    users: list[list[int]]
    waiting: list[int]


def dependencies(units: Groups, reads: Reads) -> UnitDependencies:
    """Return the dependencies between units, without those on nodes that are in no unit.

    Args:
        units: Disjoint sets of nodes.
        reads: The values that each node uses.
    """
    home: dict[ir.Node | None, int] = {node: i for i, unit in enumerate(units) for node in unit}
    found = UnitDependencies([[] for _ in units], [0] * len(units))
    for i, unit in enumerate(units):
        before = {home.get(value.producer(), i) for node in unit for value in reads[node]} - {i}
        found.waiting[i] = len(before)
        for producer in before:
            found.users[producer].append(i)
    return found


def executable_order(units: Groups, position: Mapping[ir.Node, int], needs: UnitDependencies) -> Sequence[int]:
    """Return the units in an order in which they can run; of those that are ready, the earliest in the graph first.

    Units on a cycle, and units that depend on one, are left out.

    Args:
        units: Disjoint sets of nodes, none empty.
        position: The position of each node in its graph.
        needs: The dependencies of the units.
    """
    waiting = list(needs.waiting)
    ready = [(position[unit[0]], i) for i, unit in enumerate(units) if not waiting[i]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for user in needs.users[i]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (position[units[user][0]], user))
    return order
