"""The graph-independent partitioning problem, and partitions as levels of nodes: integers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

OUTSIDE = -1
"""Producer of a value that no node computes, and region of a node that is in none."""


class Traffic(NamedTuple):
    """A value between nodes.

    Attributes:
        weight: Its bytes.
        producer: The node that computes it; `OUTSIDE` for an input of the graph.
        readers: The nodes that read it, each once.
        leaves: Whether it is an output of the graph.
    """

    weight: int
    producer: int
    readers: tuple[int, ...]
    leaves: bool = False


@dataclass(frozen=True)
class Problem:
    """Nodes that may be in regions, nodes that may not, and the values between them.

    Attributes:
        legal: For every node, in topological order, whether it may be in a region. The others run one by one.
        values: The values between nodes, without constants.
        fused_groups: Sets of legal nodes that an engine fuses.
        launch: Cost of a region, in bytes that could be moved in the time of an engine launch.
        fused_group: Cost of splitting a fused group in two, in bytes.
    """

    legal: Sequence[bool]
    values: Sequence[Traffic]
    fused_groups: Sequence[tuple[int, ...]] = ()
    launch: int = 0
    fused_group: int = 0

    @cached_property
    def before(self) -> list[list[int]]:
        """The producers that each node reads from."""
        found: list[list[int]] = [[] for _ in self.legal]
        for value in self.values:
            if value.producer != OUTSIDE:
                for reader in value.readers:
                    found[reader].append(value.producer)
        return found

    @cached_property
    def behind(self) -> list[list[int]]:
        """The users of each node's values."""
        found: list[list[int]] = [[] for _ in self.legal]
        for node, producers in enumerate(self.before):
            for producer in producers:
                found[producer].append(node)
        return found


def price(problem: Problem, region: Sequence[int]) -> int:
    """Return the cost of a partition, in bytes: launches, values that cross borders, and split fused groups.

    A value that crosses a border is written once by its region, and read once by every other region.

    Args:
        problem: The problem.
        region: The region of every node; `OUTSIDE` for nodes that are not legal.
    """
    total = problem.launch * len({region[node] for node, legal in enumerate(problem.legal) if legal})
    for value in problem.values:
        home = region[value.producer] if value.producer != OUTSIDE else OUTSIDE
        reading = {region[reader] for reader in value.readers}
        written = home != OUTSIDE and (value.leaves or bool(reading - {home}))
        total += value.weight * (written + len(reading - {home, OUTSIDE}))
    return total + problem.fused_group * sum(
        len({region[node] for node in fused_group}) - 1 for fused_group in problem.fused_groups
    )


def earliest(problem: Problem) -> list[int]:
    """Return the lowest level of every node, from 0 on.

    The maximum is as low as possible, so there are as few regions as possible. The level of an outside node is the
    highest level that it depends on, -1 if there is none.
    """
    level: list[int] = []
    for legal, before in zip(problem.legal, problem.before, strict=True):
        if legal:
            found = max((level[b] + (not problem.legal[b]) for b in before), default=0)
            level.append(max(found, 0))
        else:
            level.append(max((level[b] for b in before), default=-1))
    return level


def choices(problem: Problem) -> tuple[list[int], list[int], int]:
    """Return lowest and highest level of every node for the minimum number of regions, and the maximum level."""
    low = earliest(problem)
    top = max((level for level, legal in zip(low, problem.legal, strict=True) if legal), default=0)
    return low, latest(problem, top), top


def latest(problem: Problem, top: int) -> list[int]:
    """Return the highest level of every node if the maximum is `top`.

    The level of an outside node is one below the lowest level that depends on it.
    """
    level = [top] * len(problem.legal)
    for node in reversed(range(len(level))):
        legal = problem.legal[node]
        for user in problem.behind[node]:
            bound = level[user] - (problem.legal[user] and not legal)
            level[node] = min(level[node], bound)
    return level


def gaps_from_below(problem: Problem, level: Sequence[int]) -> list[int]:
    """Return levels of outside nodes: the highest level that each depends on; levels of legal nodes stay."""
    found = list(level)
    for node, legal in enumerate(problem.legal):
        if not legal:
            found[node] = max((found[b] for b in problem.before[node]), default=-1)
    return found


def gaps_from_above(problem: Problem, level: Sequence[int], top: int) -> list[int]:
    """Return levels of outside nodes: one below the lowest level that depends on each; levels of legal nodes stay."""
    found = list(level)
    for node in reversed(range(len(found))):
        if not problem.legal[node]:
            found[node] = min((found[u] - problem.legal[u] for u in problem.behind[node]), default=top)
    return found
