"""Summary of the decisions on a model or many nodes: coverage, counted reasons, and suggestions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.planning import HOST, SLOT, template
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.planning import Plan, PlannedNode, Remark


_KINDS = ("failed", "missed", "passed", "analysis")
_EXAMPLES = 3  # nodes named per reason
_REASONS = 4  # reasons shown per rule


def summary_lines(plan: Plan) -> list[str]:
    """Return coverage, every rule with its reasons, removed source nodes, and suggestions, as lines."""
    joins = plan.summary.get("joins", len(plan.joins))
    lines = [f"{coverage_line(plan.nodes)}; {pluralize(joins, 'join')}"]
    lines += reasons(plan.remarks)
    fates = Counter((node.operator, _fate(node.fate)) for node in plan.sources)
    if fates:
        lines.append(f"{pluralize(len(plan.sources), 'node')} of the source model are gone:")
        lines += [f"  {number} {operator} {fate}" for (operator, fate), number in fates.most_common()]
    return lines + suggestions(plan)


def coverage_line(nodes: Sequence[PlannedNode]) -> str:
    """Return the coverage: `cpu-bf16 96/104 nodes in 2 regions (bfloat16 90, float32 6), host 8 (float32 8)`."""
    numbers: dict[str, Counter[str]] = {}
    regions: dict[str, set[int]] = {}
    for node in nodes:
        numbers.setdefault(node.backend, Counter())[str(node.precision or "no float")] += 1
        regions.setdefault(node.backend, set()).update(() if node.region is None else (node.region,))
    parts = []
    for backend, kinds in sorted(numbers.items(), key=lambda item: (item[0] == HOST, -item[1].total())):
        many = f"/{pluralize(len(nodes), 'node')} in {pluralize(len(regions[backend]), 'region')}"
        types = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
        parts.append(f"{backend} {kinds.total()}{'' if backend == HOST else many} ({types})")
    return ", ".join(parts) or "no nodes"


def reasons(remarks: Iterable[Remark]) -> list[str]:
    """Return every rule with its reasons, each with a count and some node names; failures come first."""
    rules: dict[tuple[str, str, str], dict[str, list[Remark]]] = {}
    for remark in remarks:
        texts = rules.setdefault((remark.kind, remark.pass_, remark.rule), {})
        texts.setdefault(template(remark.why), []).append(remark)
    lines = []
    for (kind, pass_, rule), texts in sorted(rules.items(), key=lambda item: _rank(item[0][0], item[1])):
        members = sorted(texts.values(), key=len, reverse=True)
        number = sum(map(len, members))
        whole = all(not remark.node for group in members for remark in group)
        name = f"{pass_}/{rule}" if pass_ else rule
        lines.append(f"{kind} {name}: {'the model' if whole else pluralize(number, 'node')}")
        lines += [f"  {_reason(group)}" for group in members[:_REASONS]]
        if len(members) > _REASONS:
            rest = sum(map(len, members[_REASONS:]))
            lines.append(f"  and {pluralize(len(members) - _REASONS, 'other reason')} for {pluralize(rest, 'node')}")
    return lines


def suggestions(plan: Plan, names: Collection[str] | None = None, advice: bool = True) -> list[str]:
    """Return the suggestions, each with the number of nodes that it helps.

    Args:
        plan: The plan.
        names: The nodes; all if None.
        advice: Include advice that is not a change of the request, and so cannot be tried.
    """
    wanted = [remark for remark in plan.remarks if remark.suggest and (names is None or remark.node in names)]
    counts = Counter((remark.suggest, remark.remedy is not None) for remark in wanted)
    lines = []
    for (text, can_be_tried), number in counts.most_common():
        if can_be_tried:
            lines.append(f"suggested for {pluralize(number, 'node')}, and tried where one of them is explained: {text}")
        elif advice:
            lines.append(f"what would help {pluralize(number, 'node')}: {text}")
    return lines


def _reason(group: Sequence[Remark]) -> str:
    first = group[0]
    source = f" [{first.source}]" if first.source else ""
    same = all(remark.why == first.why for remark in group)
    names = list(dict.fromkeys(remark.node for remark in group if remark.node))
    if not names:
        return f"{first.why}{source}"
    shown = ", ".join(names[:_EXAMPLES]) + (", ..." if len(names) > _EXAMPLES else "")
    number = f"{len(group)}: " if len(group) > 1 else ""
    why = first.why if same else template(first.why).replace(SLOT, "...")
    return f"{number}{why}{source} ({shown})"


def _rank(kind: str, texts: dict[str, list[Remark]]) -> tuple[int, int]:
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), -sum(map(len, texts.values())))


def _fate(fate: str) -> str:
    return "folded into other nodes" if fate.startswith("folded into ") else fate
