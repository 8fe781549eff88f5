"""The document of a report: tables of nodes, regions, borders and reasons, as JSON data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail import __version__
from dovetail.ir import gc_paused
from dovetail.planning import OF_PROGRAMS
from dovetail.plugin import load_plugins
from dovetail_commands.plan_graph.contraction import PlanGraph
from dovetail_commands.plan_graph.result_graph import ResultGraph

from dovetail_report.collect import summary
from dovetail_report.collect.activations import activation_histograms
from dovetail_report.collect.files import sizes
from dovetail_report.collect.histograms import histograms
from dovetail_report.collect.items import ReportItems
from dovetail_report.collect.predicted_times import predicted_times
from dovetail_report.collect.ranges import layers, ranges, scales
from dovetail_report.collect.reasons import Commands, Reasons
from dovetail_report.collect.texts import short
from dovetail_report.collect.times import times
from dovetail_report.collect.tuning import tuning
from dovetail_report.linters.finding import Subject
from dovetail_report.linters.rules import lint

if TYPE_CHECKING:
    from dovetail.planning import Plan
    from dovetail.plugin import CompiledModel, PluginSet

VERSION = 2
_OPERATORS = 12  # shown of a region


def document(
    compiled: CompiledModel,
    folder: Path | None = None,
    trace: Path | None = None,
    data: object = None,
    plugins: PluginSet | None = None,
) -> dict[str, Any]:
    """Collect the data of a report, in time linear in nodes and edges.

    Args:
        compiled: The result.
        folder: The folder that it is saved in, for the table of a tuning; or None.
        trace: The timeline of a run, for the times of regions; or None.
        data: Data to run the result on, for histograms of activations; or None.
        plugins: The plugins for that; all installed ones by default.

    Raises:
        SchemaError: A profile of this machine is invalid.
        DovetailError: A weight or the timeline cannot be read, or the result does not run on the data.
    """
    with gc_paused():  # the tables are many small objects without circles
        made = _document(compiled, folder, trace, plugins or load_plugins())
    if data is not None:
        made["activations"] = activation_histograms(compiled, data, plugins or load_plugins())
    return made


def _document(compiled: CompiledModel, folder: Path | None, trace: Path | None, plugins: PluginSet) -> dict[str, Any]:
    plan, registry = compiled.plan, compiled.registry or plugins.registry
    graph = ResultGraph.of(compiled)
    planned = PlanGraph.of(compiled, graph)
    commands = Commands(plan, registry)
    reasons = Reasons.collect(plan, commands)
    subject = Subject(
        graph, planned, plan, reasons, ranges(compiled), layers(plan), histograms(compiled.model), compiled.verification
    )
    return {
        "version": VERSION,
        "dovetail": __version__,
        "title": short(plan.model.get("path") or compiled.model.graph.name or "model"),
        "command": short(commands.base, 2000),
        "coverage": short(compiled.coverage()),
        "counts": planned.counts(),
        "backends": summary.coverage(planned),
        "conversion_table": summary.conversions(compiled),
        "files": sizes(compiled),
        "accuracy": summary.accuracy(compiled),
        "goals": summary.goals(compiled),
        "tuning": tuning(folder),
        "obstacles": summary.obstacles(reasons),
        **ReportItems(planned, compiled, reasons).tables(),
        "regions": _regions(planned, plan),
        "borders": summary.borders(planned, compiled),
        "reasons": reasons.table,
        "whole": reasons.whole,
        "sources": [[short(text) for text in source] for source in plan.sources],
        "ranges": subject.ranges,
        "layers": subject.layers,
        "histograms": subject.histograms,
        "activations": [],
        "scales": scales(plan),
        "times": times(trace, graph) if trace is not None else [],
        **predicted_times(planned, plugins),
        "findings": _findings(subject, planned),
    }


def _regions(graph: PlanGraph, plan: Plan) -> list[dict[str, Any]]:
    """Return a row for each region of the file: nodes of the plan, operators, bytes in and out, what tools report."""
    result = graph.result
    crossing = [[0, 0] for _ in result.regions]
    for value in result.crossings:
        crossing[value.source][1] += value.bytes or 0
        crossing[value.target][0] += value.bytes or 0
    operators: list[Counter[str]] = [Counter() for _ in result.regions]
    for number, node in enumerate(graph.nodes):
        region = graph.region(number)
        if region >= 0:
            operators[region][node.operator] += 1
    reported = _reported(graph, plan)
    return [
        {
            "number": region.number, "backend": region.backend, "nodes": operators[number].total(),
            "operators": operators[number].most_common(_OPERATORS), "in": crossing[number][0],
            "out": crossing[number][1], "reported": reported.get(number, []),
        }
        for number, region in enumerate(result.regions)
    ]  # fmt: skip


def _reported(graph: PlanGraph, plan: Plan) -> dict[int, list[list[str]]]:
    """Return what tools and engines report, as pairs of name and value, by region of the file."""
    regions = {node.name: graph.region(number) for number, node in enumerate(graph.nodes)}
    found: dict[int, list[list[str]]] = {}
    for remark in plan.remarks:
        if remark.rule in OF_PROGRAMS and remark.node in regions:
            pairs = [[short(name), short(str(value))] for name, value in remark.facts.items()]
            found.setdefault(regions[remark.node], []).extend(pairs)
    return found


def _findings(subject: Subject, graph: PlanGraph) -> list[dict[str, Any]]:
    """Return the findings of linters, with the items of the plan in place of the file's nodes."""
    rows = [finding.as_dict() for finding in lint(subject)]
    for row in rows:
        if "nodes" in row:
            row["nodes"] = list(dict.fromkeys(graph.home[node] for node in row["nodes"] if graph.home[node] >= 0))
    return rows
