"""Layout of a result: the regions, and the nodes inside of each."""

from __future__ import annotations

from typing import NamedTuple

from dovetail_report.collect.graph import ResultGraph
from dovetail_report.layout.layered import Drawing, layered

_SMALL = 64  # edges of a region whose drawing is kept for others like it


class Layout(NamedTuple):
    """Positions of regions and, relative to the upper left corner of its region, of every node.

    Attributes:
        regions: The drawing of the regions, each as one node.
        boxes: Width and height of each region, for its nodes.
        x: Horizontal position of each node in its region.
        y: Vertical position of each node in its region.
    """

    regions: Drawing
    boxes: list[tuple[float, float]]
    x: list[float]
    y: list[float]


def laid_out(graph: ResultGraph) -> Layout:
    """Lay out the regions of a result, and the nodes of each region."""
    inner: list[list[tuple[int, int]]] = [[] for _ in graph.regions]
    place = [0] * len(graph.nodes)
    for members in graph.regions:
        for number, node in enumerate(members.nodes):
            place[node] = number
    for source, target in graph.edges:
        region = graph.region_of[source]
        if region == graph.region_of[target]:
            inner[region].append((place[source], place[target]))
    x, y, boxes = [0.0] * len(graph.nodes), [0.0] * len(graph.nodes), []
    known: dict[tuple[tuple[int, int], ...], Drawing] = {}  # repeated blocks of a model have the same drawing
    for members, edges in zip(graph.regions, inner):
        key = ((len(members.nodes), 0), *edges) if len(edges) <= _SMALL else ()
        drawing = known.get(key) if key else None
        if drawing is None:
            drawing = layered(len(members.nodes), edges)
            if key:
                known[key] = drawing
        boxes.append((drawing.width, drawing.height))
        for number, node in enumerate(members.nodes):
            x[node], y[node] = drawing.x[number], drawing.y[number]
    return Layout(layered(len(graph.regions), graph.region_edges()), boxes, x, y)
