"""Explaining a node: the chain of remarks from what was decided to what forced it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.near import near_misses

if TYPE_CHECKING:
    from dovetail.planning.plan import Plan
    from dovetail.planning.remark import Remark

__all__ = ["explain_node"]

_DEPTH = 4


def explain_node(plan: Plan, name: str) -> list[str]:
    """Lines for a person: the placement of `name`, why, because of whom, and what would help.

    Args:
        plan: The plan.
        name: Name of a node, of the value it computes, or of a source node that it stands for.

    Raises:
        DovetailError: The plan has no such node.
    """
    found = next((node for node in plan.nodes if name in (node.name, node.output) or name in node.origin), None)
    remarks: dict[str, list[Remark]] = {}
    for remark in plan.remarks:
        remarks.setdefault(remark.node, []).append(remark)
    if found is None and name not in remarks:
        near = near_misses(name, (node.name for node in plan.nodes), alike=0.5)
        hint = f"did you mean {', '.join(repr(n) for n in near)}?" if near else "plan.yaml lists all nodes"
        raise DovetailError(f"the plan has no node '{name}'", hint)
    lines = []
    if found is not None:
        ports = "".join(f", {port} {kind}" for port, kind in sorted(found.ports.items()))
        region = "" if found.region is None else f", region {found.region}"
        lines.append(f"{found.name} ({found.op_type}): {found.backend}, {found.precision or 'no float'}{ports}{region}")
        name = found.name
    _chain(name, remarks, lines, 1, {name})
    if len(lines) <= 1:
        lines.append("  nothing was remarked: it is as the model has it")
    suggestions = [remark.suggest for remark in remarks.get(name, ()) if remark.suggest]
    lines += [f"what would help: {text}" for text in dict.fromkeys(suggestions)]
    return lines


def _chain(name: str, remarks: dict[str, list[Remark]], lines: list[str], depth: int, seen: set[str]) -> None:
    for remark in remarks.get(name, ()):
        source = f" [{remark.source}]" if remark.source else ""
        lines.append(f"{'  ' * depth}{remark.kind} {remark.pass_}/{remark.rule}: {remark.why}{source}")
        for other in remark.because:
            if other not in seen and depth < _DEPTH:
                seen.add(other)
                lines.append(f"{'  ' * (depth + 1)}because of {other}:")
                _chain(other, remarks, lines, depth + 2, seen)
