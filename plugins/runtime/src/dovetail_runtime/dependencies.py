"""Which regions wait for which, and whether any of them are independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.ir.required import name_of
from dovetail_transforms.regions.regions import Region

_MOST = 4096
"""Regions up to which implied edges are found; it takes a bit per pair of regions."""


@dataclass(frozen=True)
class Dependencies:
    """The order that values impose on regions; edges that others imply are left out.

    Regions are referred to by their places in a list.

    Attributes:
        waits_for: For each region the number of others that have to be done before it.
        releases: For each region those that wait for it.
        reads: For each value how many regions read it.
        width: The largest number of regions that are on one level; 1 if each waits for the one before.
    """

    waits_for: tuple[int, ...]
    releases: tuple[tuple[int, ...], ...]
    reads: dict[str, int]
    width: int

    @classmethod
    def of(cls, regions: Sequence[Region]) -> Dependencies:
        """Return the dependencies of regions that are in an order in which they can run."""
        makers: dict[str, int] = {}
        reads: dict[str, int] = {}
        before: list[list[int]] = []
        for index, region in enumerate(regions):
            names = list(map(name_of, region.inputs))
            for name in names:
                reads[name] = reads.get(name, 0) + 1
            before.append(sorted({makers[name] for name in names if name in makers}))
            makers.update({name_of(value): index for value in region.outputs})
        if len(regions) <= _MOST:
            before = _without_implied(before)
        releases: list[list[int]] = [[] for _ in regions]
        levels: list[int] = []
        for index, sources in enumerate(before):
            levels.append(1 + max((levels[source] for source in sources), default=-1))
            for source in sources:
                releases[source].append(index)
        width = max((levels.count(level) for level in set(levels)), default=0) if len(levels) <= _MOST else 2
        return cls(tuple(map(len, before)), tuple(map(tuple, releases)), reads, width)


def _without_implied(before: Sequence[Sequence[int]]) -> list[list[int]]:
    """Leave out an edge from a region that another one, which is waited for as well, waits for."""
    ancestors: list[int] = []  # a bit per region
    kept = []
    for sources in before:
        direct, reached = [], 0
        for source in reversed(sources):
            if not reached >> source & 1:
                direct.append(source)
            reached |= ancestors[source] | 1 << source
        ancestors.append(reached)
        kept.append(direct[::-1])
    return kept
