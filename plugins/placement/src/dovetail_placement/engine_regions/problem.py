"""The problem of cutting a graph into regions, and cuts as levels of nodes: integers only, apart from any graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

OUTSIDE = -1
"""The producer of a value that no node computes, and the region of a node that belongs to none."""


class Traffic(NamedTuple):
    """A value between nodes.

    Attributes:
        weight: Its bytes.
        producer: The node that computes it; `OUTSIDE` for an input of the graph.
        readers: The nodes that read it, each once.
        leaves: It is an output of the graph.
    """

    weight: int
    producer: int
    readers: tuple[int, ...]
    leaves: bool = False


@dataclass(frozen=True)
class Problem:
    """Nodes that may be in regions, nodes that may not, and the values between them.

    Attributes:
        legal: For every node, in topological order, whether it belongs into a region. The others run one by one.
        values: The values between nodes, without constants.
        fused groups: Sets of legal nodes that an engine computes together.
        launch: The price of a region, in bytes: what could be moved in the time that it takes to start an engine.
        fused group: The price of dividing an fused group in two, in bytes.
    """

    legal: Sequence[bool]
    values: Sequence[Traffic]
    fused_groups: Sequence[tuple[int, ...]] = ()
    launch: int = 0
    atom: int = 0

    @cached_property
    def before(self) -> list[list[int]]:
        """The nodes that each node reads from."""
        found: list[list[int]] = [[] for _ in self.legal]
        for value in self.values:
            if value.producer != OUTSIDE:
                for reader in value.readers:
                    found[reader].append(value.producer)
        return found

    @cached_property
    def behind(self) -> list[list[int]]:
        """The nodes that read from each node."""
        found: list[list[int]] = [[] for _ in self.legal]
        for node, producers in enumerate(self.before):
            for producer in producers:
                found[producer].append(node)
        return found


def price(problem: Problem, region: Sequence[int]) -> int:
    """What a cut costs, in bytes: starting its regions, what crosses their borders, and fused groups that are divided.

    A value that crosses a border is written once by the region that computes it, and read once by every other region.

    Args:
        problem: The problem.
        region: The region of every node; `OUTSIDE` for those that are not legal.
    """
    total = problem.launch * len({region[node] for node, legal in enumerate(problem.legal) if legal})
    for value in problem.values:
        home = region[value.producer] if value.producer != OUTSIDE else OUTSIDE
        reading = {region[reader] for reader in value.readers}
        written = home != OUTSIDE and (value.leaves or bool(reading - {home}))
        total += value.weight * (written + len(reading - {home, OUTSIDE}))
    return total + problem.atom * sum(len({region[node] for node in atom}) - 1 for atom in problem.fused_groups)


def run_after_another(problem: Problem, region: Sequence[int]) -> bool:
    """Whether regions, and the nodes outside of them, can run one after the other: their graph has no cycle."""
    count = max(region, default=OUTSIDE) + 1
    unit = [home if home != OUTSIDE else count + node for node, home in enumerate(region)]
    behind: dict[int, set[int]] = {number: set() for number in unit}
    for node, producers in enumerate(problem.before):
        for producer in producers:
            if unit[producer] != unit[node]:
                behind[unit[producer]].add(unit[node])
    waiting = dict.fromkeys(behind, 0)
    for users in behind.values():
        for user in users:
            waiting[user] += 1
    ready, done = [number for number, left in waiting.items() if not left], 0
    while ready:
        done += 1
        for user in behind[ready.pop()]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return done == len(behind)


def earliest(problem: Problem) -> list[int]:
    """The lowest level of every node, from 0 on.

    The highest of them is as low as levels allow, so there are as few regions as possible. The number of a node outside
    is the highest level that it waits for, -1 if there is none.
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
    """The lowest and the highest level of every node with as few regions as possible, and the highest level of all."""
    low = earliest(problem)
    top = max((level for level, legal in zip(low, problem.legal, strict=True) if legal), default=0)
    return low, latest(problem, top), top


def latest(problem: Problem, top: int) -> list[int]:
    """The highest level of every node if the highest of all is `top`.

    The number of a node outside is one below the lowest level that waits for it.
    """
    level = [top] * len(problem.legal)
    for node in reversed(range(len(level))):
        legal = problem.legal[node]
        for user in problem.behind[node]:
            bound = level[user] - (problem.legal[user] and not legal)
            level[node] = min(level[node], bound)
    return level


def gaps_from_below(problem: Problem, level: Sequence[int]) -> list[int]:
    """Numbers for the nodes outside: the highest level that each waits for; levels of legal nodes stay."""
    found = list(level)
    for node, legal in enumerate(problem.legal):
        if not legal:
            found[node] = max((found[b] for b in problem.before[node]), default=-1)
    return found


def gaps_from_above(problem: Problem, level: Sequence[int], top: int) -> list[int]:
    """Numbers for the nodes outside: one below the lowest level that waits for each; levels of legal nodes stay."""
    found = list(level)
    for node in reversed(range(len(found))):
        if not problem.legal[node]:
            found[node] = min((found[u] - problem.legal[u] for u in problem.behind[node]), default=top)
    return found
