"""The finding of a linter, and the input of linters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dovetail_report.collect.reasons import SLOT

if TYPE_CHECKING:
    from dovetail.planning import Plan
    from dovetail.plugin import Verification
    from dovetail_commands.plan_graph.contraction import PlanGraph
    from dovetail_commands.plan_graph.result_graph import ResultGraph

    from dovetail_report.collect.reasons import Reasons


@dataclass(frozen=True)
class Finding:
    """One thing that is costly or unusual.

    Attributes:
        rule: Short stable name of the linter, in kebab case.
        level: `warning` if it costs time or accuracy, `note` if it may.
        text: The finding and its reason, one sentence.
        nodes: Indices of its nodes.
        advice: What to do about it; or empty.
        command: The command that does it; or empty.
    """

    rule: str
    level: Literal["warning", "note"]
    text: str
    nodes: tuple[int, ...] = ()
    advice: str = ""
    command: str = ""

    def as_dict(self, most: int = 200) -> dict[str, Any]:
        """Return plain data, with at most `most` of its nodes."""
        pairs = (("rule", self.rule), ("level", self.level), ("text", self.text), ("nodes", list(self.nodes[:most])),
                 ("advice", self.advice), ("command", self.command))  # fmt: skip
        return {key: value for key, value in pairs if value}


@dataclass(frozen=True)
class Subject:
    """The input of linters.

    Attributes:
        graph: The graph of the result's file.
        planned: The graph of its plan.
        plan: Its plan.
        reasons: The reasons of its nodes.
        ranges: Rows of measured ranges.
        layers: Rows of errors of layers.
        histograms: Rows of 8-bit weights.
    """

    graph: ResultGraph
    planned: PlanGraph
    plan: Plan
    reasons: Reasons
    ranges: Sequence[dict[str, Any]] = field(default_factory=list)
    layers: Sequence[dict[str, Any]] = field(default_factory=list)
    histograms: Sequence[dict[str, Any]] = field(default_factory=list)
    verification: Verification | None = None

    def why(self, node: int, kinds: Sequence[str] = ("missed", "failed", "passed")) -> str:
        """Return the most telling reason of a node, with the names in its text; empty if it has none."""
        entries = self.reasons.of.get(self.graph.nodes[node].name or "", ())
        rows = [(self.reasons.table[entry[0]], entry) for entry in entries]
        rows.sort(key=lambda found: found[0]["pass"] != "place")  # where a node is says more than what became of it
        for kind in kinds:
            for row, entry in rows:
                if row["kind"] == kind:
                    names = iter(entry[1] if len(entry) > 1 else ())
                    parts = row["why"].split(SLOT)
                    return parts[0] + "".join(next(names, "") + part for part in parts[1:])
        return ""

    def command(self, node: int) -> str:
        """Return the command of the first remedy of a node; empty if it has none."""
        entries = self.reasons.of.get(self.graph.nodes[node].name or "", ())
        return next((entry[3] for entry in entries if len(entry) > 3 and entry[3]), "")
