"""The summary of a report: coverage, borders, sizes, accuracy, and the causes of nodes elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.planning import HOST
from dovetail_commands.plan_graph.contraction import PlanGraph

from dovetail_report.collect.reasons import Reasons
from dovetail_report.collect.texts import SENTENCE, short

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

_OBSTACLES = 50


def coverage(graph: PlanGraph) -> list[dict[str, Any]]:
    """Return a row for each backend: nodes of the plan, share of all, regions, and precisions; the host last."""
    nodes = Counter(node.backend for node in graph.nodes)
    regions: dict[str, set[int]] = {}
    for node in graph.nodes:
        regions.setdefault(node.backend, set()).update(() if node.region is None else (node.region,))
    kinds = Counter((node.backend, str(node.precision or "no float")) for node in graph.nodes)
    rows = []
    for backend, number in sorted(nodes.items(), key=lambda item: (item[0] == HOST, -item[1])):
        precisions = [f"{kind} {count}" for (of, kind), count in kinds.most_common() if of == backend]
        rows.append({"backend": backend, "nodes": number, "share": round(number / len(graph.nodes), 4),
                     "regions": len(regions[backend]), "precisions": ", ".join(precisions)})  # fmt: skip
    return rows


def borders(graph: PlanGraph, compiled: CompiledModel) -> list[dict[str, Any]]:
    """Return a row for each value that crosses from one region to another, with the conversions of the plan on it."""
    joins: dict[str, list[str]] = {}
    for join in compiled.plan.joins:
        joins.setdefault(join.value, []).append(f"{join.kind} {join.held} to {join.wanted}")
    return [
        {
            "value": short(crossing.value), "source": crossing.source, "target": crossing.target,
            "producer": graph.home[crossing.producer], "reader": graph.home[crossing.reader], "bytes": crossing.bytes,
            "type": short(crossing.type), "conversion": short("; ".join(joins.get(crossing.value, ()))),
        }
        for crossing in graph.result.crossings
    ]  # fmt: skip


def conversions(compiled: CompiledModel) -> list[dict[str, Any]]:
    """Return a row for each kind of conversion: number and bytes; those of unknown size separately."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for join in compiled.plan.joins:
        row = rows.setdefault((join.kind, str(join.held), str(join.wanted)), [0, 0, 0])
        row[0] += 1
        row[1] += join.bytes or 0
        row[2] += join.bytes is None
    ordered = sorted(rows.items(), key=lambda item: -item[1][0])
    return [
        {"kind": kind, "from": held, "to": wanted, "number": number, "bytes": size, "unknown": unknown}
        for (kind, held, wanted), (number, size, unknown) in ordered
    ]


def accuracy(compiled: CompiledModel) -> list[dict[str, Any]]:
    """Return a row for each output that was compared with the original; empty if nothing was compared."""
    verification = compiled.verification
    if verification is None:
        return []
    found = verification.as_dict()
    outputs = found.get("outputs", ()) if isinstance(found, Mapping) else ()
    keys = {"name": "output", "snr_db": "SNR dB", "cosine": "cosine", "max_abs": "max abs", "top1": "top-1"}
    rows = []
    for output in outputs:
        known = {title: output[key] for key, title in keys.items() if output.get(key) is not None}
        rows.append({key: short(value) if isinstance(value, str) else value for key, value in known.items()})
    return rows


def goals(compiled: CompiledModel) -> list[str]:
    """Return sentences on accuracy: the comparison, and the cost of the request's accuracy goals."""
    lines = []
    if compiled.verification is not None:
        lines += [*compiled.verification.warnings, *map(str, compiled.verification.missed)]
        lines += compiled.verification.notes
    found = compiled.plan.summary.get("accuracy")
    if isinstance(found, Mapping):
        raised = found.get("raised") or ()
        lines.append(f"accuracy goals: {len(raised)} nodes were raised in {found.get('runs', '?')} runs")
    return [short(line, SENTENCE) for line in lines]


def obstacles(reasons: Reasons) -> list[dict[str, Any]]:
    """Return the reasons that keep most nodes from a backend, worst first: index of the reason, and its nodes."""
    rows = [
        {"reason": number, "nodes": row["nodes"]}
        for number, row in enumerate(reasons.table)
        if row["kind"] == "failed" or row["kind"] == "missed" and row.get("backend")
    ]
    return sorted(rows, key=lambda row: -row["nodes"])[:_OBSTACLES]
