"""The cut: which nodes form a region."""

from __future__ import annotations

from dovetail_placement.engine_regions.levels import choices, gaps_from_above, gaps_from_below
from dovetail_placement.engine_regions.problem import OUTSIDE, Problem, price
from dovetail_placement.engine_regions.swaps import Swaps

_SWEEPS = 4
"""How often all pairs of levels are tried from each start."""

_LOOKS, _MORE_LOOKS = 3, 30_000
"""How many ends of values and arcs are looked at from each start, for each end there is and beyond that, before moving
nodes ends. Only large graphs in which most nodes have a choice need more."""


def cut(problem: Problem) -> list[int]:
    """The region of every node, numbered in an order in which they can run; `OUTSIDE` for nodes that are not legal.

    There are as few regions as possible, and no more than `runs` makes of any order of the nodes. A node that may be in
    one of several is where `price` is lowest, as far as moves between two regions find that: nodes start on their
    lowest and on their highest levels, and the cheaper result counts. Linear in nodes and edges.
    """
    low, high, top = choices(problem)
    free = [node for node, legal in enumerate(problem.legal) if legal and low[node] < high[node]]
    found = [_moved(problem, start, free, top) for start in ((low, high) if free else (low,))]
    return min(found, key=lambda region: price(problem, region))


def _moved(problem: Problem, start: list[int], free: list[int], top: int) -> list[int]:
    level = list(start)
    swaps = Swaps(problem, level, free)
    effort = _MORE_LOOKS + _LOOKS * sum(1 + len(value.readers) for value in problem.values)
    for _ in range(_SWEEPS if free else 0):
        # What is outside runs as late as possible while nodes rise, and as early as possible while they sink.
        swaps.bound(gaps_from_above(problem, level, top))
        rose, effort = swaps.sweep(effort)
        swaps.bound(gaps_from_below(problem, level))
        sank, effort = swaps.sweep(effort)
        if not (rose or sank):
            break
    return [number if legal else OUTSIDE for number, legal in zip(level, problem.legal, strict=True)]


def runs(problem: Problem) -> list[int]:
    """Regions by the usual rule of engine builders: runs of legal nodes in the given order."""
    region, number, running = [], -1, False
    for legal in problem.legal:
        number += legal and not running
        running = legal
        region.append(number if legal else OUTSIDE)
    return region
