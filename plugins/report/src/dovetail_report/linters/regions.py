"""Linters for regions: small ones, and borders with much data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from dovetail.planning import HOST
from dovetail.text import pluralize

from dovetail_report.linters.finding import Finding, Subject

_SMALL = 3
_LARGE = 1 << 20
_SHOWN = 20


def small_regions(subject: Subject) -> Iterator[Finding]:
    """Find regions of at most 3 nodes between others: their borders may cost more than the backend gains."""
    graph = subject.graph
    bytes_of: Counter[int] = Counter()
    sides: dict[int, set[str]] = {}
    for crossing in graph.crossings:
        for end, side in ((crossing.source, "out"), (crossing.target, "in")):
            bytes_of[end] += crossing.bytes or 0
            sides.setdefault(end, set()).add(side)
    planned = Counter(map(subject.planned.region, range(len(subject.planned.nodes))))
    for index, region in enumerate(graph.regions):
        if planned[index] > _SMALL or len(sides.get(index, ())) < 2:
            continue
        number = "" if region.number is None else f" {region.number}"
        size = f" with {bytes_of[index]} bytes" if bytes_of[index] else ""
        content = pluralize(planned[index], "node") if planned[index] else "only conversions"
        why = next(filter(None, map(subject.why, region.nodes)), "")
        text = f"region{number} of {region.backend} has {content}, and two borders{size}"
        advice = "pin its nodes to the backend around it, if that has them"
        command = next(filter(None, map(subject.command, region.nodes)), "")
        because = f"; it is there because: {why}" if why else ""
        level: Literal["warning", "note"] = "warning" if region.backend == HOST else "note"
        yield Finding("small-region", level, text + because, tuple(region.nodes), "" if command else advice, command)


def large_borders(subject: Subject) -> Iterator[Finding]:
    """Find values of a megabyte or more that cross from one backend to another."""
    graph = subject.graph
    large = [crossing for crossing in graph.crossings if (crossing.bytes or 0) >= _LARGE]
    for crossing in sorted(large, key=lambda crossing: -(crossing.bytes or 0))[:_SHOWN]:
        source, target = graph.regions[crossing.source], graph.regions[crossing.target]
        if source.backend != target.backend:
            text = (f"'{crossing.value}' carries {(crossing.bytes or 0) / 1e6:.3g} MB in every run from "
                    f"{source.backend} to {target.backend}")  # fmt: skip
            yield Finding("large-border", "warning", text, (crossing.producer, crossing.reader))
