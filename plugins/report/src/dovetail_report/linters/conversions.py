"""Linters for conversions: pairs that undo each other, and islands of another precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dovetail.text import pluralize

from dovetail_report.collect.texts import short
from dovetail_report.linters.finding import Finding, Subject

CONVERSIONS = frozenset(("Cast", "QuantizeLinear", "DequantizeLinear"))
_ISLAND = 8  # nodes, at most
_NAMED = 3


def inverse_casts(subject: Subject) -> Iterator[Finding]:
    """Find a Cast whose input is a Cast from the same type that it casts back to."""
    graph = subject.graph
    for source, target in graph.edges:
        first, second = graph.nodes[source], graph.nodes[target]
        if first.op_type != "Cast" or second.op_type != "Cast" or first.inputs[0] is None:
            continue
        before, after = first.inputs[0].dtype, second.outputs[0].dtype
        middle = first.outputs[0].dtype
        if before is not None and before == after and before != middle and middle is not None:
            names = f"'{short(first.name)}' and '{short(second.name)}'"
            why = subject.why(target) or subject.why(source) or "the source model has it"
            types = f"{before.name.lower()} to {middle.name.lower()} and back"
            yield Finding("inverse-casts", "warning", f"the Cast pair {names} goes from {types}; it is there because: "
                          f"{why}", (source, target))  # fmt: skip


def islands(subject: Subject) -> Iterator[Finding]:
    """Find few nodes of one precision that conversions separate from everything around them."""
    graph = subject.graph
    through = _sources_through(subject)
    groups = _Groups(len(graph.nodes))
    inward, outward = [], []
    for reader, makers in enumerate(through):
        for maker, conversions in makers:
            if conversions and _key(subject, maker) != _key(subject, reader):
                inward.append((reader, conversions))
                outward.append((maker, conversions))
            elif graph.placements[maker].backend == graph.placements[reader].backend:
                groups.join(maker, reader)
    members: dict[int, list[int]] = {}
    for node, placed in enumerate(graph.nodes):
        if placed.op_type not in CONVERSIONS:
            members.setdefault(groups.of(node), []).append(node)
    enters: dict[int, set[int]] = {}
    leaves: dict[int, set[int]] = {}
    for borders, found in ((inward, enters), (outward, leaves)):
        for node, conversions in borders:
            found.setdefault(groups.of(node), set()).update(conversions)
    usual = Counter(_key(subject, node) for nodes in members.values() for node in nodes).most_common(1)
    for group, nodes in members.items():
        if (
            _key(subject, nodes[0]) == usual[0][0]
            or len(nodes) > _ISLAND
            or not enters.get(group)
            or not leaves.get(group)
        ):
            continue
        cost = len(enters[group] | leaves[group])
        precision = str(graph.placements[nodes[0]].precision or "no float")
        named = ", ".join(f"'{short(graph.name(node))}'" for node in nodes[:_NAMED])
        more = ", ..." if len(nodes) > _NAMED else ""
        why = Counter(filter(None, (subject.why(node) for node in nodes))).most_common(1)
        because = f"; most of it because: {why[0][0]}" if why else ""
        command = next(filter(None, map(subject.command, nodes)), "")
        text = f"{precision} island of {pluralize(len(nodes), 'node')} costs {pluralize(cost, 'border')}: {named}{more}"
        yield Finding("island", "warning", text + because, tuple(nodes), command=command)


def _key(subject: Subject, node: int) -> tuple[str, str]:
    place = subject.graph.placements[node]
    return place.backend, str(place.precision)


def _sources_through(subject: Subject) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Return for each node that is no conversion the nodes that it reads, each with the conversions in between."""
    graph = subject.graph
    above: list[list[int]] = [[] for _ in graph.nodes]
    for source, target in graph.edges:
        above[target].append(source)
    known: dict[int, tuple[int | None, tuple[int, ...]]] = {}
    through: list[list[tuple[int, tuple[int, ...]]]] = []
    for node, sources in enumerate(above):
        found = []
        for source in sources if graph.nodes[node].op_type not in CONVERSIONS else ():
            maker, conversions = _resolved(source, subject, above, known)
            if maker is not None:
                found.append((maker, conversions))
        through.append(found)
    return through


def _resolved(
    node: int, subject: Subject, above: list[list[int]], known: dict[int, tuple[int | None, tuple[int, ...]]]
) -> tuple[int | None, tuple[int, ...]]:
    """Follow conversions upward to the node that computes the value; None if that is an input or a weight."""
    chain: list[int] = []
    at: int | None = node
    while at is not None and at not in known and subject.graph.nodes[at].op_type in CONVERSIONS:
        chain.append(at)
        at = above[at][0] if above[at] else None
    end, conversions = known.get(at, (at, ())) if at is not None else (None, ())
    for link in reversed(chain):
        conversions = (*conversions, link)[-4:]  # longer chains are one border all the same
        known[link] = (end, conversions)
    return end, conversions


class _Groups:
    """Disjoint sets of nodes."""

    def __init__(self, nodes: int):
        self._parent = list(range(nodes))

    def of(self, node: int) -> int:
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def join(self, one: int, other: int) -> None:
        self._parent[self.of(one)] = self.of(other)
