"""Layered layout: every node below its producers, close to its neighbors, without crossings where that is cheap.

The steps are those of Sugiyama's method without dummy nodes, so that time and memory are linear in nodes and edges
(sorting a layer aside): layers by the longest path, order in a layer by the mean position of the neighbors, positions
that keep the order and a distance of 1. Very wide layers are folded into several rows, and very long drawings into
several columns, because a page is about as wide as it is high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_SWEEPS = 4
_GAP = 3.0  # between columns


class Drawing(NamedTuple):
    """Positions of nodes, with 1 between neighbors in a row and between rows; y grows downward.

    Attributes:
        x: Horizontal position of each node, from 0 on.
        y: Vertical position of each node, from 0 on.
        width: The largest x.
        height: The largest y.
    """

    x: list[float]
    y: list[float]
    width: float
    height: float


def layered(nodes: int, edges: Sequence[tuple[int, int]]) -> Drawing:
    """Lay out a graph.

    Args:
        nodes: Number of nodes.
        edges: Pairs of source and target; edges that close a cycle do not count.
    """
    if nodes < 2:
        return Drawing([0.0] * nodes, [0.0] * nodes, 0.0, 0.0)
    below: list[list[int]] = [[] for _ in range(nodes)]
    above: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in edges:
        if source != target:
            below[source].append(target)
            above[target].append(source)
    rows = _folded(_rows(_layers(above, below)), nodes)
    _order(rows, above, below)
    x = _positions(rows, above, below)
    return _columns(rows, x)


def _layers(above: list[list[int]], below: list[list[int]]) -> list[int]:
    """Return the layer of each node: the longest path that leads to it; one without sources is next to its reader."""
    waiting = [len(sources) for sources in above]
    layer = [0] * len(above)
    done = bytearray(len(above))
    ready = [node for node, number in enumerate(waiting) if not number]
    order: list[int] = []
    spare = 0  # where to look for a node on a circle
    while len(order) < len(above):
        if not ready:
            while done[spare]:
                spare += 1
            ready.append(spare)
        node = ready.pop()
        if done[node]:
            continue
        done[node] = 1
        order.append(node)
        for target in below[node]:
            if not done[target]:
                layer[target] = max(layer[target], layer[node] + 1)
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
    for node in order:
        if not above[node] and below[node]:
            layer[node] = max(0, min(layer[target] for target in below[node]) - 1)
    return layer


def _rows(layer: list[int]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for node, number in enumerate(layer):
        rows[number].append(node)
    return [row for row in rows if row]


def _folded(rows: list[list[int]], nodes: int) -> list[list[int]]:
    """Split rows that are far wider than the drawing would be as a square."""
    most = 12 + 2 * math.isqrt(nodes)
    return [row[start : start + most] for row in rows for start in range(0, len(row), most)]


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sort each row by the mean position of the neighbors, downward and upward in turn."""
    place = [0.0] * len(above)
    for row in rows:
        _number(row, place)
    for sweep in range(_SWEEPS):
        near = below if sweep % 2 else above
        for row in reversed(rows) if sweep % 2 else rows:
            if len(row) > 1:
                key = {node: _mean(near[node], place, place[node]) for node in row}
                row.sort(key=key.__getitem__)
                _number(row, place)


def _number(row: list[int], place: list[float]) -> None:
    middle = (len(row) - 1) / 2
    for number, node in enumerate(row):
        place[node] = number - middle


def _mean(near: list[int], place: list[float], default: float) -> float:
    return sum(place[node] for node in near) / len(near) if near else default


def _positions(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[float]:
    """Return x: as near to the neighbors as order and distance allow."""
    x = [0.0] * len(above)
    for row in rows:
        _number(row, x)
    for near, walk in ((above, rows), (below, rows[::-1]), (above, rows)):
        for row in walk:
            if len(row) == 1:
                x[row[0]] = _mean(near[row[0]], x, x[row[0]])
                continue
            wanted = [_mean(near[node], x, x[node]) for node in row]
            left, right = wanted[:], wanted[:]
            for i in range(1, len(row)):
                left[i] = max(wanted[i], left[i - 1] + 1)
            for i in range(len(row) - 2, -1, -1):
                right[i] = min(wanted[i], right[i + 1] - 1)
            for node, low, high in zip(row, left, right):
                x[node] = (low + high) / 2
    return x


def _columns(rows: list[list[int]], x: list[float]) -> Drawing:
    """Place rows below each other, in as many columns as make the drawing about square."""
    widest = max(max(x[node] for node in row) - min(x[node] for node in row) for row in rows) + _GAP
    tall = len(rows) if len(rows) <= 4 * widest + 24 else math.ceil(math.sqrt(len(rows) * widest))
    y = [0.0] * len(x)
    left = width = 0.0
    for start in range(0, len(rows), tall):
        part = rows[start : start + tall]
        first = min(x[node] for row in part for node in row)
        for number, row in enumerate(part):
            for node in row:
                x[node] += left - first
                y[node] = float(number)
        width = max(x[node] for row in part for node in row)
        left = width + _GAP
    return Drawing([round(value, 2) for value in x], y, round(width, 2), float(min(tall, len(rows)) - 1))
