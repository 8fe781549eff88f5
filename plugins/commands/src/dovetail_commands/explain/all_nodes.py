"""Report of all nodes that are not on the first backend, grouped by cause, with tested remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail.planning import HOST, SLOT, template
from dovetail.text import pluralize

from dovetail_commands.explain.remedies import Cause, cause_among, none_after, suggestions_among, trials_for

if TYPE_CHECKING:
    from dovetail.planning import Plan, PlannedNode, Remark
    from dovetail.plugin import PluginSet

    from dovetail_commands.explain.trials import RemedyTrials


_PLANNED = 100_000
"""Maximum nodes planned over all trials: each trial plans the whole model."""
_SHOWN = 12  # nodes of a group listed with their remedies


@dataclass
class NodeElsewhere:
    """A node that is not on the wanted backend.

    Attributes:
        name: Its name.
        op_type: Its operator.
        backend: Its backend.
        why: The reason in one clause.
        remedy: The cheapest tested change of the request that brings it there, in command-line syntax.
        none: Why there is no remedy; empty if there is one, or none was tried.
    """

    name: str
    op_type: str
    backend: str
    why: str
    remedy: str = ""
    none: str = ""

    @property
    def tried(self) -> bool:
        """Whether remedies were tried."""
        return bool(self.remedy or self.none)

    def __str__(self) -> str:
        found = self.remedy or (f"none: {self.none}" if self.none else "not tried")
        return f"{self.name} ({self.op_type}): {found}"


@dataclass
class CauseGroup:
    """Nodes with the same cause.

    Attributes:
        rule: The short name of the cause.
        why: The reason, with dots in place of names that differ.
        source: File and line of the rule, or empty.
        nodes: The nodes, in graph order.
        advice: What else would help, which no change of the request does.
    """

    rule: str
    why: str
    source: str
    nodes: list[NodeElsewhere] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the group as text."""
        source = f" [{self.source}]" if self.source else ""
        yield f"{self.rule}: {pluralize(len(self.nodes), 'node')}: {self.why}{source}"
        tried = [node for node in self.nodes if node.tried]
        for node in tried[:_SHOWN]:
            yield f"  {node}"
        if len(tried) > _SHOWN:
            helped = sum(bool(node.remedy) for node in tried[_SHOWN:])
            yield f"  and {len(tried) - _SHOWN} more, with a remedy for {helped}"
        rest = [node.name for node in self.nodes if not node.tried]
        if rest:
            more = f", and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
            yield f"  not tried: {', '.join(rest[:_SHOWN])}{more}"
        yield from (f"  or: {text}" for text in self.advice)


@dataclass
class Elsewhere:
    """The nodes of a plan that are not on the first backend.

    Attributes:
        backend: The first backend.
        here: The number of nodes on it.
        groups: The other nodes by cause, largest group first.
        untried: Why remedies were not tried, for all or some nodes; empty if they were.
    """

    backend: str
    here: int
    groups: list[CauseGroup]
    untried: str = ""

    def lines(self) -> list[str]:
        """Return the report as text."""
        number = sum(len(group.nodes) for group in self.groups)
        causes = f", for {pluralize(len(self.groups), 'reason')}" if number else ""
        head = f"{self.backend} has {pluralize(self.here, 'node')}; {number} elsewhere{causes}"
        lines = [head, *(line for group in self.groups for line in group.lines())]
        return lines + ([f"remedies were not tried{self.untried}"] if self.untried else [])

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        groups = [
            {
                "rule": group.rule, "why": group.why, "source": group.source, "count": len(group.nodes),
                "nodes": [dict(vars(node)) for node in group.nodes], "advice": list(group.advice),
            }
            for group in self.groups
        ]  # fmt: skip
        return {"backend": self.backend, "nodes": self.here, "groups": groups, "untried": self.untried}


def all_elsewhere(
    plan: Plan, result: object, model: object = None, plugins: PluginSet | None = None, planned: int = _PLANNED
) -> Elsewhere:
    """Group the nodes that are not on the first backend of the request, and try remedies for them.

    Remedies are tried for one node of each group first, then for the others, within the budget of planned nodes.

    Args:
        plan: The plan.
        result: The origin of the plan; the source model is searched near it.
        model: The source model, or None.
        plugins: The plugins to try remedies with; all installed ones by default.
        planned: Budget of planned nodes, over all trials.

    Raises:
        DovetailError: The given model is not that of the plan.
    """
    backend = next((one.name for one in plan.backends), HOST)
    away = [node for node in plan.nodes if node.backend != backend]
    remarks: dict[str, list[Remark]] = {}
    for remark in plan.remarks:
        remarks.setdefault(remark.node, []).append(remark)
    groups = _grouped(remarks, away, backend)
    found = Elsewhere(backend, len(plan.nodes) - len(away), groups)
    if not away:
        return found
    most = max(planned // max(len(plan.nodes), 1), 0)
    if most < 2:
        found.untried = f": the model has {len(plan.nodes)} nodes, and each trial plans all of them"
        return found
    wanted = [node.name for node in away]
    trials = trials_for(plan, result, model, plugins, wanted, most_nodes=planned)
    if isinstance(trials, str):
        found.untried = f", because {trials}"
        return found
    entries = {node.name: node for node in away}
    _try_all(remarks, found, trials, entries, most)
    return found


def _grouped(remarks: Mapping[str, Sequence[Remark]], away: Sequence[PlannedNode], backend: str) -> list[CauseGroup]:
    groups: dict[tuple[str, str, str], list[tuple[PlannedNode, Cause]]] = {}
    for node in away:
        cause = cause_among(remarks.get(node.name, ()), node, backend)
        groups.setdefault((cause.rule, template(cause.why), cause.source), []).append((node, cause))
    found = []
    for (rule, pattern, source), members in groups.items():
        same = len({cause.why for _, cause in members}) == 1
        why = members[0][1].why if same else pattern.replace(SLOT, "...")
        nodes = [NodeElsewhere(node.name, node.operator, node.backend, cause.why) for node, cause in members]
        advice = (remark.advice for node, _ in members for remark in remarks.get(node.name, ()) if remark.advice)
        found.append(CauseGroup(rule, why, source, nodes, list(dict.fromkeys(advice))))
    return sorted(found, key=lambda group: -len(group.nodes))


def _try_all(
    remarks: Mapping[str, Sequence[Remark]],
    found: Elsewhere,
    trials: RemedyTrials,
    entries: Mapping[str, PlannedNode],
    most: int,
) -> None:
    (backend,) = (backend for backend in trials.backends if backend.name == found.backend)
    for group, node in _in_turns(found.groups):
        if trials.made >= most:
            left = sum(not node.tried for group in found.groups for node in group.nodes)
            found.untried = f" for {pluralize(left, 'node')}: each trial plans all {found.here + len(entries)} nodes"
            return
        entry = entries[node.name]
        refused = group.rule == "not-supported"
        suggested = suggestions_among(remarks.get(node.name, ()))
        tried = list(trials.for_backend(backend, entry, suggested, refused))
        if tried and not tried[-1].why_not:
            node.remedy = tried[-1].remedy.text
        else:
            node.none = none_after(node.why, tried)


def _in_turns(groups: Iterable[CauseGroup]) -> Iterator[tuple[CauseGroup, NodeElsewhere]]:
    """Yield the first node of each group, then the others."""
    yield from ((group, group.nodes[0]) for group in groups)
    yield from ((group, node) for group in groups for node in group.nodes[1:])
