"""Linters for conversions: pairs that undo each other, and islands of another precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dovetail.text import pluralize

from dovetail_report.collect.texts import short
from dovetail_report.linters.finding import Finding, Subject

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
    """Find few nodes of one precision that conversions of the plan separate from everything around them."""
    graph = subject.planned
    keys = [(node.backend, str(node.precision)) for node in graph.nodes]
    groups = _Groups(len(graph.nodes))
    makers: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for edge in graph.edges:
        if edge.source < len(groups) and edge.target < len(groups):
            if keys[edge.source] == keys[edge.target]:
                groups.join(edge.source, edge.target)
        elif edge.source < len(groups) and edge.target >= graph.first_join:
            makers[edge.target] = edge.source
        elif edge.source >= graph.first_join and edge.target < len(groups):
            readers.setdefault(edge.source, []).append(edge.target)
    enters: dict[int, set[int]] = {}
    leaves: dict[int, set[int]] = {}
    for conversion, maker in makers.items():
        for reader in readers.get(conversion, ()):
            if keys[maker] != keys[reader]:
                leaves.setdefault(groups.of(maker), set()).add(conversion)
                enters.setdefault(groups.of(reader), set()).add(conversion)
    members: dict[int, list[int]] = {}
    for node in range(len(groups)):
        members.setdefault(groups.of(node), []).append(node)
    usual = Counter(keys).most_common(1)
    for group, nodes in members.items():
        if len(nodes) > _ISLAND or not enters.get(group) or not leaves.get(group):
            continue
        if keys[nodes[0]] == usual[0][0]:
            continue
        cost = len(enters[group] | leaves[group])
        precision = str(graph.nodes[nodes[0]].precision or "no float")
        named = ", ".join(f"'{short(graph.nodes[node].name)}'" for node in nodes[:_NAMED])
        more = ", ..." if len(nodes) > _NAMED else ""
        files = tuple(graph.main[node] for node in nodes if graph.main[node] >= 0)
        why = Counter(filter(None, map(subject.why, files))).most_common(1)
        because = f"; most of it because: {why[0][0]}" if why else ""
        command = next(filter(None, map(subject.command, files)), "")
        size, price = pluralize(len(nodes), "node"), pluralize(cost, "conversion")
        text = f"{precision} island of {size} costs {price}: {named}{more}"
        yield Finding("island", "warning", text + because, files, command=command)


class _Groups:
    """Disjoint sets of nodes."""

    def __init__(self, nodes: int):
        self._parent = list(range(nodes))

    def __len__(self) -> int:
        return len(self._parent)

    def of(self, node: int) -> int:
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def join(self, one: int, other: int) -> None:
        self._parent[self.of(one)] = self.of(other)
