"""Predicted times of regions, from the measurements of `dovetail profile` on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_precision.predicted_times import nanoseconds, profiles_here

from dovetail_report.collect.graph import ResultGraph

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet


def predicted_times(graph: ResultGraph, plugins: PluginSet) -> list[dict[str, Any]]:
    """Return a row for each region whose backend was profiled: the predicted milliseconds.

    Regions with open extents, other than a first one, which counts as 1, have no row.

    Raises:
        SchemaError: The file of a profile is invalid.
    """
    tables = profiles_here({region.backend for region in graph.regions}, plugins)
    rows = []
    for index, region in enumerate(graph.regions):
        table = tables.get(region.backend)
        if table is None:
            continue
        formats = ((graph.nodes[number], graph.placements[number].precision) for number in region.nodes)
        taken = [nanoseconds(node, format_, table) for node, format_ in formats]
        known = [time for time in taken if time is not None]
        if len(known) == len(taken):
            rows.append({"region": index, "ms": round((sum(known) + table.borders.get("call", 0)) / 1e6, 4)})
    return rows
