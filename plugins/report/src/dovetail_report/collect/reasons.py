"""Remarks as a table of distinct reasons, and the reasons of every node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dovetail_commands.request import command_text

from dovetail_report.collect.texts import SENTENCE, short

if TYPE_CHECKING:
    from dovetail.passes import BackendChoice
    from dovetail.planning import Plan, Remark, Remedy
    from dovetail.plugin import Registry


_DIFFERS = re.compile(r"'[^']*'|\b\d+\.\d+(?:e[-+]?\d+)?\b")
"""What differs in reasons that are otherwise the same: quoted names, and measured numbers such as scales."""

SLOT = "\ufffc"
"""Stands in the text of a reason for each name or number that differs from node to node."""


class Commands:
    """Commands that repeat the request of a plan with a remedy.

    Args:
        plan: The plan.
        registry: The registry with the installed options.
    """

    def __init__(self, plan: Plan, registry: Registry):
        self._registry = registry
        self._request = plan.asked()
        self._model = "/".join(filter(None, (plan.model.get("folder", ""), plan.model.get("path", "")))) or None
        self._known: dict[tuple[str, str], str] = {}
        self.base = self._text(self._request.backends)

    def _text(self, backends: Sequence[BackendChoice]) -> str:
        request = replace(self._request, backends=tuple(backends))
        return command_text("compile", self._model, request, self._registry)

    def with_remedy(self, remedy: Remedy) -> str:
        """Return the command with the pins, edits and options of a remedy; empty if it has none."""
        words = [word for pin in remedy.pins for word in ("--pin", pin)]
        words += [word for edit in remedy.edits for word in ("--edit", edit)]
        if not words and not remedy.options:
            return ""
        command, hash_, comment = self._base(remedy).partition("  # ")
        return f"{command} {shlex.join(words)}".rstrip() + hash_ + comment

    def _base(self, remedy: Remedy) -> str:
        if not remedy.options:
            return self.base
        key = (remedy.backend, repr(sorted(remedy.options.items())))
        if key not in self._known:
            changed = [
                replace(choice, options={**choice.options, **remedy.options})
                if choice.name == remedy.backend
                else choice
                for choice in self._request.backends
            ]
            self._known[key] = self._text(changed)
        return self._known[key]


@dataclass
class Reasons:
    """The distinct reasons of a plan, and those of each node.

    Attributes:
        table: A row for each distinct reason: its text with slots, that of its first node, and the number of nodes of
            the plan that have it; of other nodes, such as conversions, if it is about these alone.
        of: By name of a node, its reasons: index into the table, what fills the slots of its text, names of the nodes
            that forced it, command of the remedy.
        whole: Rows of the remarks on the model as a whole.
    """

    table: list[dict[str, Any]] = field(default_factory=list)
    of: dict[str, list[list[Any]]] = field(default_factory=dict)
    whole: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def collect(cls, plan: Plan, commands: Commands) -> Reasons:
        """Group the remarks of a plan by all that does not depend on the node."""
        found = cls()
        known: dict[tuple[object, ...], int] = {}
        nodes: list[set[str]] = []  # by row; a node that was refused in several rounds counts once
        for remark in plan.remarks:
            if not remark.node:
                found.whole.append(_row(remark, remark.why) | _way_out(remark, commands))
                continue
            pattern = _DIFFERS.sub(SLOT, remark.why)
            key = (remark.kind, remark.pass_, remark.rule, pattern, remark.source, remark.backend, remark.format,
                   remark.advice, bool(remark.remedy))  # fmt: skip
            row = known.get(key)
            if row is None:
                row = known[key] = len(found.table)
                way_out = _way_out(remark, commands)
                example = {"example": short(remark.why, SENTENCE)} if SLOT in pattern else {}
                found.table.append({**_row(remark, pattern), **example, **way_out})
                nodes.append(set())
            nodes[row].add(remark.node)
            slots = [short(text) for text in _DIFFERS.findall(remark.why)] if SLOT in pattern else []
            command = _way_out(remark, commands).get("command", "")
            entry = [row, slots, [short(name) for name in remark.because], command]
            while len(entry) > 1 and not entry[-1]:
                entry.pop()
            entries = found.of.setdefault(remark.node, [])
            if entry not in entries:
                entries.append(entry)
        planned = {node.name for node in plan.nodes}
        for line, names in zip(found.table, nodes, strict=True):
            line["nodes"] = len(names & planned) or len(names)
        return found


def _row(remark: Remark, text: str) -> dict[str, Any]:
    fields = {
        "kind": remark.kind, "pass": remark.pass_, "rule": remark.rule, "why": short(text, SENTENCE),
        "source": short(remark.source), "backend": remark.backend, "format": remark.format,
        "advice": short(remark.advice, SENTENCE),
        "why_not": short(remark.remedy.why_not, SENTENCE) if remark.remedy is not None else "",
    }  # fmt: skip
    return {key: value for key, value in fields.items() if value}


def _way_out(remark: Remark, commands: Commands) -> dict[str, str]:
    if remark.remedy is None or remark.remedy.why_not:
        return {}
    command = commands.with_remedy(remark.remedy)
    return {"command": short(command, SENTENCE)} if command else {"advice": short(remark.remedy.text, SENTENCE)}
