"""Explanation of a plan: the placement of one node, or the decisions on a whole model."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import HOST, OF_PROGRAMS, coverage_line, source_text
from dovetail.text import near_misses

from dovetail_commands.explain.summary import reasons, suggestions, summary_lines

if TYPE_CHECKING:
    from dovetail.planning import Plan, PlannedNode, Remark, SourceNode


_DEPTH = 4
_IN_FULL = 3  # nodes explained in full
_SIMILAR_AMONG = 2000  # names, up to which all are compared


def explain_plan(plan: Plan, selector: str | None = None) -> list[str]:
    """Explain the whole model, or the nodes that `selector` matches in the plan or in the source model.

    Returns:
        Lines of text.

    Raises:
        DovetailError: The selector matches nothing; the error suggests similar names.
    """
    if selector is None:
        return summary_lines(plan)
    nodes, sources = _matching(plan, selector)
    if not nodes and not sources:
        # An inserted conversion is not in the plan, but has a remark.
        if any(remark.node == selector for remark in plan.remarks):
            return _explain_node(plan, selector)
        raise _no_match(plan, selector)
    if not sources and len(nodes) == 1:
        return _explain_node(plan, nodes[0].name or nodes[0].output)
    lines = _source_lines(sources)
    if nodes and len(nodes) + len(sources) <= _IN_FULL:
        for node in nodes:
            lines += _explain_node(plan, node.name or node.output)
        return lines + suggestions(plan, {node.name for node in nodes}, advice=False)
    if nodes:
        names = {node.name for node in nodes}
        lines += [
            coverage_line(nodes, precisions=True),
            *reasons([r for r in plan.remarks if r.node in names]),
            *suggestions(plan, names),
        ]
    return lines


def only_node(plan: Plan, selector: str | None) -> PlannedNode | None:
    """Return the node that `selector` matches, if it is a single one that the plan still has."""
    nodes, sources = _matching(plan, selector) if selector else ((), ())
    return nodes[0] if len(nodes) == 1 and not sources else None


def _explain_node(plan: Plan, name: str) -> list[str]:
    """Explain a node by its name, by the value that it computes, or by a source node folded into it."""
    found = next((node for node in plan.nodes if name in (node.name, node.output) or name in node.origin), None)
    remarks: dict[str, list[Remark]] = {}
    for remark in plan.remarks:
        remarks.setdefault(remark.node, []).append(remark)
    if found is None and name not in remarks:
        raise _no_match(plan, name)
    lines = []
    if found is not None:
        lines.append(_placement_line(found))
        name = found.name
    _chain(name, remarks, lines, 1, {name})
    if len(lines) <= 1:
        lines.append(f"  {_claimed(plan, found)}, and it is as in the source model")
    lines += _of_program(plan, found)
    # Changes of the request are tried instead; `remedy_lines` reports the outcome.
    helpful = [remark.advice for remark in remarks.get(name, ()) if remark.advice]
    return lines + [f"what would help: {text}" for text in dict.fromkeys(helpful)]


def _of_program(plan: Plan, node: PlannedNode | None) -> list[str]:
    """Return what its tool and its engine report of a node's region, which is remarked at another node of it."""
    if node is None or node.region is None:
        return []
    others = {one.name for one in plan.nodes if one.region == node.region and one is not node}
    found = [remark for remark in plan.remarks if remark.rule in OF_PROGRAMS and remark.node in others]
    return [f"  region {node.region}, with {remark.node}: {remark.why}" for remark in found]


def _claimed(plan: Plan, node: PlannedNode | None) -> str:
    """Return who claimed a node on which there is no remark: the strategy of the first backend, or the host."""
    chosen = next((one for one in plan.backends if node is not None and one.name == node.backend), None)
    if chosen is None or chosen.name == HOST:
        return "the host runs it, as no other backend was named"
    return f"strategy '{chosen.strategy}' claimed it for {chosen.name}" if chosen.strategy else f"{chosen.name} has it"


def _placement_line(node: PlannedNode) -> str:
    ports = "".join(f", {port} {kind}" for port, kind in sorted(node.ports.items()))
    region = "" if node.region is None else f", region {node.region}"
    where = f"{node.name} ({node.op_type}){source_text(node.name, node.origin)}"
    return f"{where}: {node.backend}, {node.precision or 'no float'}{ports}{region}"


def _chain(name: str, remarks: dict[str, list[Remark]], lines: list[str], depth: int, seen: set[str]) -> None:
    for remark in remarks.get(name, ()):
        source = f" [{remark.source}]" if remark.source else ""
        lines.append(f"{'  ' * depth}{remark.kind} {remark.pass_}/{remark.rule}: {remark.why}{source}")
        for other in remark.because:
            if other not in seen and depth < _DEPTH:
                seen.add(other)
                lines.append(f"{'  ' * (depth + 1)}because of {other}:")
                _chain(other, remarks, lines, depth + 2, seen)


def _matching(plan: Plan, selector: str) -> tuple[list[PlannedNode], list[SourceNode]]:
    """Return the nodes of the plan and the lost source nodes that `selector` names."""
    form, _, rest = selector.partition(":")
    if form == "type" and rest:
        return [n for n in plan.nodes if n.operator == rest], [s for s in plan.sources if s.operator == rest]
    if form == "region" and rest:
        return [n for n in plan.nodes if n.region is not None and str(n.region) == rest], []
    name = rest if form == "name" and rest else selector
    exact = [n for n in plan.nodes if name in (n.name, n.output) or name in n.origin or _is_path(name, n)]
    gone = [s for s in plan.sources if s.name == name]
    if exact or gone or not any(character in name for character in "*?["):
        return ([] if gone and not any(name in (n.name, n.output) for n in exact) else exact), gone
    match = re.compile(fnmatch.translate(name)).match
    return [n for n in plan.nodes if match(n.name) or match(n.output)], [s for s in plan.sources if match(s.name)]


def _is_path(name: str, node: PlannedNode) -> bool:
    """Check whether a path like `loop_1/body/Add_3` is this node; its identity is body path and output name."""
    return bool(node.name) and name.endswith(f"/{node.name}") and node.output.startswith(name[: -len(node.name)])


def _source_lines(sources: Sequence[SourceNode]) -> list[str]:
    if len(sources) <= 3 * _IN_FULL:
        return [f"{node.name} ({node.operator}) of the source model: {node.fate}" for node in sources]
    groups: dict[tuple[str, str], list[SourceNode]] = {}
    for node in sources:
        folded = node.fate.startswith("folded into ")
        groups.setdefault((node.operator, "folded into another node" if folded else node.fate), []).append(node)
    lines = []
    for (operator, fate), members in groups.items():
        shown = [f"{node.name} into {node.fate[12:]}" if "folded into" in fate else node.name for node in members[:3]]
        more = ", ..." if len(members) > len(shown) else ""
        lines.append(f"{len(members)} {operator} of the source model {fate} ({', '.join(shown)}{more})")
    return lines


def _no_match(plan: Plan, selector: str) -> DovetailError:
    form, _, rest = selector.partition(":")
    word = rest if form in ("type", "region", "name") and rest else selector
    if form == "type" and rest:
        known: Iterable[str] = {n.operator for n in plan.nodes} | {s.operator for s in plan.sources}
    elif form == "region" and rest:
        known = {str(n.region) for n in plan.nodes if n.region is not None}
    else:
        every = (*(node.name for node in plan.nodes), *(source.name for source in plan.sources))
        names = (name for name in every if name)
        # Comparing with every name of a large model would take minutes, so prefilter by prefix and length.
        alike = (name for name in names if name[:2].lower() == word[:2].lower() and abs(len(name) - len(word)) < 4)
        known = [name for name, _ in zip(alike, range(_SIMILAR_AMONG))]
    near = near_misses(word, known, alike=0.5)
    hint = f"did you mean {', '.join(repr(n) for n in near)}?" if near else "plan.yaml lists all nodes"
    what = (
        "no node matches" if form in ("type", "region") and rest or set(word) & set("*?[") else "the plan has no node"
    )
    return DovetailError(f"{what} '{selector}'", hint)
