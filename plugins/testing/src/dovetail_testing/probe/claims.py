"""What a backend file claims and the engine does not do, and the other way round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from dovetail.text import pluralize

from dovetail_testing.probe.clauses import reason_of

if TYPE_CHECKING:
    from dovetail_testing.probe.observing import Observation
    from dovetail_testing.probe.probing import Probe


@dataclass(frozen=True)
class Contradiction:
    """Nodes of one operator about which a file and the engine disagree for one reason.

    Attributes:
        operator: The operator.
        kind: `claimed`, if the file accepts what the engine does not compute, or `refused`.
        nodes: How many.
        example: One of them.
        reason: Why the engine does not compute it, or why the file refuses it.
    """

    operator: str
    kind: Literal["claimed", "refused"]
    nodes: int
    example: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def contradictions(found: Probe) -> list[Contradiction]:
    """Return what the compared file says and the engine does not do, most nodes first of each kind."""
    listed: list[Contradiction] = []
    for operator, rule in found.rules.items():
        claimed = [each for each in rule.observations if each.names.refusal == "" and not each.right]
        refused = [each for each in rule.observations if each.names.refusal and each.right]
        listed += _by_reason(operator, "claimed", ((reason_of(each), each) for each in claimed))
        listed += _by_reason(operator, "refused", ((each.names.refusal or "", each) for each in refused))
    return sorted(listed, key=lambda each: (each.kind, -each.nodes, each.operator))


def _by_reason(
    operator: str, kind: Literal["claimed", "refused"], found: Iterable[tuple[str, Observation]]
) -> list[Contradiction]:
    nodes: dict[str, list[Observation]] = {}
    for reason, each in found:
        nodes.setdefault(reason, []).append(each)
    return [Contradiction(operator, kind, len(those), those[0].label, reason) for reason, those in nodes.items()]


def lines_of(listed: Iterable[Contradiction], against: str) -> list[str]:
    """Return the report as lines."""
    lines, listed = [], list(listed)
    for kind, title in (
        ("claimed", f"{against} accepts, and the engine does not compute"),
        ("refused", f"the engine computes, and {against} refuses"),
    ):
        own = [each for each in listed if each.kind == kind]
        lines.append(f"{title}: {pluralize(sum(each.nodes for each in own), 'node')}")
        lines += [
            f"    {each.operator}: {pluralize(each.nodes, 'node')} ({each.example}): {each.reason}" for each in own
        ]
    return lines
