"""The document of a report: tables of nodes, regions, borders and reasons, as JSON data."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.ir import gc_paused
from dovetail.plugin import load_plugins

from dovetail_report.collect import summary
from dovetail_report.collect.activations import activation_histograms
from dovetail_report.collect.files import sizes
from dovetail_report.collect.graph import ResultGraph
from dovetail_report.collect.histograms import histograms
from dovetail_report.collect.predicted_times import predicted_times
from dovetail_report.collect.ranges import layers, ranges, scales
from dovetail_report.collect.reasons import Commands, Reasons
from dovetail_report.collect.texts import Interned, short
from dovetail_report.collect.times import times
from dovetail_report.collect.tuning import tuning
from dovetail_report.layout.regions import Layout, laid_out
from dovetail_report.linters.finding import Subject
from dovetail_report.linters.rules import lint

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

VERSION = 1
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
    layout = laid_out(graph)
    commands = Commands(plan, registry)
    reasons = Reasons.collect(plan.remarks, commands)
    subject = Subject(graph, plan, reasons, ranges(compiled), layers(plan), histograms(compiled.model))
    return {
        "version": VERSION,
        "dovetail": version("dovetail"),
        "title": short(plan.model.get("path") or compiled.model.graph.name or "model"),
        "command": short(commands.base, 2000),
        "coverage": short(compiled.coverage()),
        "backends": summary.coverage(graph),
        "conversions": summary.conversions(compiled),
        "files": sizes(compiled),
        "accuracy": summary.accuracy(compiled),
        "goals": summary.goals(compiled),
        "tuning": tuning(folder),
        "obstacles": summary.obstacles(reasons),
        "nodes": _nodes(graph, layout, reasons),
        "edges": [end for edge in graph.edges for end in edge],
        "regions": _regions(graph, layout),
        "region_edges": [end for edge in graph.region_edges() for end in edge],
        "borders": summary.borders(graph, compiled),
        "reasons": reasons.table,
        "whole": reasons.whole,
        "sources": [[short(text) for text in source] for source in plan.sources],
        "ranges": subject.ranges,
        "layers": subject.layers,
        "histograms": subject.histograms,
        "activations": [],
        "scales": scales(plan),
        "times": times(trace, graph) if trace is not None else [],
        "predicted": predicted_times(graph, plugins),
        "findings": [finding.as_dict() for finding in lint(subject)],
    }


def _nodes(graph: ResultGraph, layout: Layout, reasons: Reasons) -> dict[str, Any]:
    """Return the nodes in columns; rare properties by the number of the node."""
    operators, places, inputs = Interned(), Interned(), Interned()
    columns: dict[str, Any] = {"name": [], "operator": [], "backend": [], "precision": [], "output": []}
    origins: dict[int, list[str]] = {}
    ports: dict[int, dict[str, str]] = {}
    of_node: dict[int, list[list[Any]]] = {}
    for number, (node, place) in enumerate(zip(graph.nodes, graph.placements)):
        columns["name"].append(short(graph.name(number)))
        columns["operator"].append(operators.index(f"{node.domain}::{node.op_type}" if node.domain else node.op_type))
        columns["backend"].append(places.index(place.backend))
        columns["precision"].append(inputs.index(str(place.precision or "")))
        output = node.outputs[0] if node.outputs else None
        columns["output"].append("" if output is None else _cut_output(output.name or "", graph.name(number)))
        if names := graph.origin(number):
            origins[number] = [short(name) for name in names[:20]]
        if place.ports:
            ports[number] = {port: str(format_) for port, format_ in sorted(place.ports.items())}
        if node.name in reasons.of and graph.index[node.name] == number:
            of_node[number] = reasons.of[node.name]
    return {
        **columns, "operators": operators.texts, "backends": places.texts, "precisions": inputs.texts,
        "region": graph.region_of, "x": layout.x, "y": layout.y, "origins": origins, "ports": ports,
        "reasons": of_node,
    }  # fmt: skip


def _cut_output(name: str, node: str) -> str:
    """Return the name of a value; `~` stands for the name of its node at the start, because most begin with it."""
    return f"~{short(name[len(node) :])}" if name.startswith(node) and len(node) <= 200 else short(name)


def _regions(graph: ResultGraph, layout: Layout) -> list[dict[str, Any]]:
    crossing = [[0, 0] for _ in graph.regions]
    for value in graph.crossings:
        crossing[value.source][1] += value.bytes or 0
        crossing[value.target][0] += value.bytes or 0
    return [
        {
            "number": region.number, "backend": region.backend, "nodes": len(region.nodes),
            "operators": region.operators.most_common(_OPERATORS), "x": layout.regions.x[number],
            "y": layout.regions.y[number], "width": layout.boxes[number][0], "height": layout.boxes[number][1],
            "in": crossing[number][0], "out": crossing[number][1],
        }
        for number, region in enumerate(graph.regions)
    ]  # fmt: skip
