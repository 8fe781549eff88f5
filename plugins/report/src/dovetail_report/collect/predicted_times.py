"""Predicted times of regions, from the measurements of `dovetail profile` on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_commands.plan_graph.contraction import PlanGraph
from dovetail_precision.predicted_times import nanoseconds, profiles_here

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet


def predicted_times(graph: PlanGraph, plugins: PluginSet) -> dict[str, Any]:
    """Return predicted milliseconds: `predicted`, a row for each region whose backend was profiled, and `node_times`.

    `node_times` has the microseconds of each node of the plan, -1 where its backend was not profiled; it is empty if
    none was. Regions with open extents, other than a first one, which counts as 1, have no row.

    Raises:
        SchemaError: The file of a profile is invalid.
    """
    result = graph.result
    tables = profiles_here({region.backend for region in result.regions}, plugins)
    rows: list[dict[str, Any]] = []
    of_nodes = [-1.0] * len(graph.nodes) if tables else []
    for index, region in enumerate(result.regions):
        table = tables.get(region.backend)
        if table is None:
            continue
        whole: float | None = table.borders.get("call", 0)
        for number in region.nodes:
            taken = nanoseconds(result.nodes[number], result.placements[number].precision, table)
            if taken is None:
                whole = None
                continue
            whole = None if whole is None else whole + taken
            if 0 <= (home := graph.home[number]) < len(of_nodes):
                of_nodes[home] = round(max(of_nodes[home], 0) + taken / 1e3, 3)
        if whole is not None:
            rows.append({"region": index, "ms": round(whole / 1e6, 4)})
    return {"predicted": rows, "node_times": of_nodes}
