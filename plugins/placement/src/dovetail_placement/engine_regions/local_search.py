"""Partitioning by local search: improve regions by moving nodes between two levels with minimum cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail_placement.engine_regions.min_cut import INFINITE, SINK, SOURCE, Network
from dovetail_placement.engine_regions.problem import (
    OUTSIDE,
    Problem,
    Traffic,
    choices,
    gaps_from_above,
    gaps_from_below,
    price,
)


class Swaps:
    """Moves nodes between levels as long as that makes borders cheaper.

    Args:
        problem: The problem.
        level: The level of every legal node, changed in place. Levels of the nodes outside are set by `bound`.
        free: The legal nodes that have more than one possible level.
    """

    def __init__(self, problem: Problem, level: list[int], free: Sequence[int]):
        self._problem, self.level, self._free = problem, level, free
        self._is_free = [False] * len(level)
        for node in free:
            self._is_free[node] = True
        fused_groups = (
            [Traffic(problem.fused_group, OUTSIDE, fused_group) for fused_group in problem.fused_groups]
            if problem.fused_group
            else []
        )
        # Model a fused group as an external value that all its nodes read.
        values = [value for value in (*problem.values, *fused_groups) if value.weight]
        self._values: list[Traffic] = []
        self._around: list[list[int]] = [[] for _ in level]
        for value in values:
            legal = [n for n in (value.producer, *value.readers) if n != OUTSIDE and problem.legal[n]]
            if any(map(self._is_free.__getitem__, legal)):
                for node in legal:
                    if self._is_free[node]:
                        self._around[node].append(len(self._values))
                self._values.append(value)
        self._gaps: Sequence[int] = level

    def bound(self, gaps: Sequence[int]) -> None:
        """Fix the levels of the nodes outside, which bound the other nodes during a sweep."""
        self._gaps = gaps

    def sweep(self, effort: int) -> tuple[bool, int]:
        """Try all pairs of levels that share a value; return whether any node moved, and the remaining `effort`.

        Args:
            effort: Budget of value ends and network arcs to visit. Parts that exceed it are not moved.
        """
        moved = False
        for (low, high), seeds in sorted(self._pairs().items()):
            seen: set[int] = set()
            for seed in seeds:
                if effort <= 0:
                    return moved, 0
                if seed not in seen and self.level[seed] in (low, high):
                    part, looked = self._part(seed, low, high, seen, effort)
                    effort -= looked
                    if part and effort > 0:
                        changed, effort = self._swap(part, low, high, effort)
                        moved |= changed
        return moved, effort

    def _pairs(self) -> dict[tuple[int, int], list[int]]:
        """Return the pairs of levels that share a value, with the free nodes that share one."""
        found: dict[tuple[int, int], dict[int, None]] = {}
        for value in self._values:
            nodes = [node for node in (value.producer, *value.readers) if node != OUTSIDE and self._problem.legal[node]]
            levels = sorted({self.level[node] for node in nodes})
            if len(levels) < 2:
                continue
            at: dict[int, list[int]] = {}
            for node in nodes:
                if self._is_free[node]:
                    at.setdefault(self.level[node], []).append(node)
            neighbors = dict.fromkeys([*zip(levels, levels[1:], strict=False), *((levels[0], o) for o in levels[1:])])
            for pair in neighbors:
                nodes = [node for number in pair for node in at.get(number, ())]
                if nodes:
                    found.setdefault(pair, {}).update(dict.fromkeys(nodes))
        return {pair: list(nodes) for pair, nodes in found.items()}

    def _part(self, seed: int, low: int, high: int, seen: set[int], effort: int) -> tuple[list[int], int]:
        """Return the nodes that may move between two levels and share values with `seed`, and the effort spent."""
        if not self._moves(seed, low, high):
            return [], len(self._around[seed])
        seen.add(seed)
        part, values, looked = [seed], set(), 0
        for node in part:
            if looked > effort:
                break
            for number in self._around[node]:
                if number in values:
                    continue
                values.add(number)
                value = self._values[number]
                looked += 1 + len(value.readers)
                for other in (value.producer, *value.readers):
                    if other == OUTSIDE or other in seen or not self._is_free[other]:
                        continue
                    if self.level[other] in (low, high) and self._moves(other, low, high):
                        seen.add(other)
                        part.append(other)
        return part, looked

    def _moves(self, node: int, low: int, high: int) -> bool:
        """Check whether a node may be on either level, provided that its neighbors on these two move with it."""
        level, problem = self.level, self._problem
        if level[node] == low:
            for user in problem.behind[node]:
                if problem.legal[user]:
                    if low < level[user] < high:
                        return False
                elif self._gaps[user] < high:
                    return False
            return True
        for producer in problem.before[node]:
            if problem.legal[producer]:
                if low < level[producer] < high:
                    return False
            elif self._gaps[producer] >= low:
                return False
        return True

    def _swap(self, part: list[int], low: int, high: int, effort: int) -> tuple[bool, int]:
        """Move the nodes of a part to the cheaper of two levels; return whether any moved, and the `effort` left."""
        network = Network()
        vertex = {node: network.vertex() for node in part}
        present = 0
        for ends in self._constraints(part, vertex, low, high):
            network.arc(*ends, INFINITE)
            effort -= 1
        for number in dict.fromkeys(number for node in part for number in self._around[node]):
            cost, arcs = self._enter(self._values[number], vertex, network, low, high)
            present, effort = present + cost, effort - arcs
        found = network.cut(effort)
        if found is None:
            return False, 0
        if found[0] >= present:
            return False, found[2]
        for node in part:
            self.level[node] = high if found[1][vertex[node]] else low
        return True, found[2]

    def _constraints(self, part: list[int], vertex: dict[int, int], low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield arcs from a user to its producer, which keep levels from decreasing along an edge."""
        problem = self._problem
        for node in part:
            for user in problem.behind[node]:
                if problem.legal[user] and (end := self._end(user, vertex, low, high)) is not None:
                    yield end, vertex[node]
            for producer in problem.before[node]:
                if problem.legal[producer] and producer not in vertex and self.level[producer] in (low, high):
                    yield vertex[node], SOURCE if self.level[producer] == low else SINK

    def _end(self, node: int, vertex: dict[int, int], low: int, high: int) -> int | None:
        """Return the vertex of a node: its own, or that of its level if it is fixed there; None on other levels."""
        if node in vertex:
            return vertex[node]
        return {low: SOURCE, high: SINK}.get(self.level[node]) if self._problem.legal[node] else None

    def _enter(self, value: Traffic, vertex: dict[int, int], network: Network, low: int, high: int) -> tuple[int, int]:
        """Add the cost of a value to the network; return its present variable cost, and the number of arcs."""
        ends = [self._end(reader, vertex, low, high) for reader in value.readers]
        readers = [end for end in ends if end is not None]
        if not readers:
            return 0, 0
        some = any(self.level[n] == high for n, end in zip(value.readers, ends, strict=True) if end is not None)
        every = all(self.level[n] == high for n, end in zip(value.readers, ends, strict=True) if end is not None)
        home = self._end(value.producer, vertex, low, high) if value.producer != OUTSIDE else None
        # `any_high` is on the sink's side as soon as one user is.
        any_high = network.vertex()
        for reader in readers:
            network.arc(any_high, reader, INFINITE)
        if home is not None:
            # The producer is never above a user. It writes the value unless something else requires that anyway.
            written = value.leaves or len(readers) < len(ends)
            weight = value.weight * (1 if written else 2)
            network.arc(home, any_high, weight)
            return weight * (some and self.level[value.producer] == low), 1 + len(readers)
        # Both levels read the value unless all of its users are on one of them.
        all_high = network.vertex()
        for reader in readers:
            network.arc(reader, all_high, INFINITE)
        network.arc(all_high, any_high, value.weight)
        return value.weight * (some and not every), 1 + 2 * len(readers)


_SWEEPS = 4
"""Maximum number of sweeps over all pairs of levels from each start."""

_LOOKS, _MORE_LOOKS = 3, 30_000
"""Budget of value ends and arcs per start: a multiple of the number of ends, plus a constant. Only large graphs in
which most nodes have a choice exceed it."""


def cut(problem: Problem) -> list[int]:
    """Return the region of every node, numbered in an executable order; `OUTSIDE` for nodes that are not legal.

    There are as few regions as possible, and no more than `runs` forms from any order of the nodes. A node with a
    choice is where `price` is lowest, as far as moves between two regions find that: the search starts from the lowest
    and from the highest levels, and the cheaper result is returned. Linear in nodes and edges.
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
        # Nodes outside run as late as possible while nodes rise, and as early as possible while they sink.
        swaps.bound(gaps_from_above(problem, level, top))
        rose, effort = swaps.sweep(effort)
        swaps.bound(gaps_from_below(problem, level))
        sank, effort = swaps.sweep(effort)
        if not (rose or sank):
            break
    return [number if legal else OUTSIDE for number, legal in zip(level, problem.legal, strict=True)]


def runs(problem: Problem) -> list[int]:
    """Form regions by the usual rule of engine builders: runs of legal nodes in the given order."""
    region, number, running = [], -1, False
    for legal in problem.legal:
        number += legal and not running
        running = legal
        region.append(number if legal else OUTSIDE)
    return region
