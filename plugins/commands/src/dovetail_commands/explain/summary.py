"""Summary of the decisions on a model or many nodes: coverage, counted reasons, and suggestions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.planning import SLOT, coverage_line, template
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.planning import Plan, Remark


_KINDS = ("failed", "missed", "passed", "analysis")
_EXAMPLES = 3  # nodes named per reason
_REASONS = 4  # reasons shown per rule
_TRIALS = 6  # trials shown, of the first and of the last ones


def summary_lines(plan: Plan) -> list[str]:
    """Return coverage, every rule with its reasons, removed source nodes, and suggestions, as lines."""
    lines = [f"{coverage_line(plan.nodes, precisions=True)}; {pluralize(len(plan.joins), 'conversion')}"]
    lines += reasons(plan.remarks)
    fates = Counter((node.operator, _fate(node.fate)) for node in plan.sources)
    if fates:
        lines.append(f"{pluralize(len(plan.sources), 'node')} of the source model are gone:")
        lines += [f"  {number} {operator} {fate}" for (operator, fate), number in fates.most_common()]
    return lines + tried(plan) + suggestions(plan)


def tried(plan: Plan) -> list[str]:
    """Return what searches tried for the result, in order: the figure of each trial, and why it was proposed."""
    found = plan.summary.get("trials")
    trials = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    if not trials:
        return []
    policies = ", ".join(dict.fromkeys(str(one.get("policy")) for one in trials))
    lines = [f"  {one.get('figure')}: {one.get('why')}" for one in trials]
    if len(lines) > 2 * _TRIALS:
        lines[_TRIALS:-_TRIALS] = [f"  ... and {pluralize(len(lines) - 2 * _TRIALS, 'other')}, in the plan"]
    return [f"{pluralize(len(trials), 'trial')} of {policies}:", *lines]


def reasons(remarks: Iterable[Remark]) -> list[str]:
    """Return every rule with its reasons, each with a count and some node names; failures come first."""
    rules: dict[tuple[str, str, str], dict[str, list[Remark]]] = {}
    for remark in remarks:
        texts = rules.setdefault((remark.kind, remark.pass_, remark.rule), {})
        texts.setdefault(template(remark.why), []).append(remark)
    lines = []
    for (kind, pass_, rule), texts in sorted(rules.items(), key=lambda item: _rank(item[0][0], item[1])):
        members = sorted(texts.values(), key=len, reverse=True)
        name = f"{pass_}/{rule}" if pass_ else rule
        lines.append(f"{kind} {name}: {_subject(remark for group in members for remark in group)}")
        lines += [f"  {_reason(group)}" for group in members[:_REASONS]]
        if len(members) > _REASONS:
            rest = _subject(remark for group in members[_REASONS:] for remark in group)
            lines.append(f"  and {pluralize(len(members) - _REASONS, 'other reason')} for {rest}")
    return lines


def suggestions(plan: Plan, names: Collection[str] | None = None, advice: bool = True) -> list[str]:
    """Return the suggestions, each with the number of nodes that it helps.

    Args:
        plan: The plan.
        names: The nodes; all if None.
        advice: Include advice that is not a change of the request, and so cannot be tried.
    """
    wanted = [remark for remark in plan.remarks if remark.suggest and (names is None or remark.node in names)]
    found: dict[tuple[str, bool], list[Remark]] = {}
    for remark in wanted:
        found.setdefault((remark.suggest, remark.remedy is not None), []).append(remark)
    lines = []
    for (text, can_be_tried), remarks in sorted(found.items(), key=lambda item: -len(item[1])):
        if can_be_tried:
            lines.append(f"suggested for {_subject(remarks)}, and tried where a node is explained: {text}")
        elif advice:
            lines.append(f"what would help {_subject(remarks)}: {text}")
    return lines


def _subject(remarks: Iterable[Remark]) -> str:
    """Return how many nodes remarks are about: a node that was refused in several rounds is one node."""
    names = {remark.node for remark in remarks if remark.node}
    return pluralize(len(names), "node") if names else "the model"


def _reason(group: Sequence[Remark]) -> str:
    first = group[0]
    source = f" [{first.source}]" if first.source else ""
    same = all(remark.why == first.why for remark in group)
    names = list(dict.fromkeys(remark.node for remark in group if remark.node))
    if not names:
        return f"{first.why}{source}"
    shown = ", ".join(names[:_EXAMPLES]) + (", ..." if len(names) > _EXAMPLES else "")
    number = f"{len(names)}: " if len(names) > 1 else ""
    why = first.why if same else template(first.why).replace(SLOT, "...")
    return f"{number}{why}{source} ({shown})"


def _rank(kind: str, texts: dict[str, list[Remark]]) -> tuple[int, int]:
    return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), -sum(map(len, texts.values())))


def _fate(fate: str) -> str:
    return "folded into other nodes" if fate.startswith("folded into ") else fate
