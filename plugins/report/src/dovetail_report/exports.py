"""The graph of a result for other viewers: Netron, and Google's Model Explorer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.planning import get_placement
from dovetail_commands.plan_graph.result_graph import ResultGraph
from dovetail_onnx.files.writing import write_text

from dovetail_report.collect.texts import SENTENCE, short

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

_COLORS = ("#8cb4dc", "#f3b0b8", "#9fd8a8", "#e6dd9a", "#a9dff2", "#dcb0d6", "#d9d9d9")


def save_for_netron(compiled: CompiledModel, path: Path) -> None:
    """Write the model with `backend`, `precision`, `region` and `reason` as metadata of nodes, which Netron shows.

    The result itself is not changed.

    Raises:
        DovetailError: The file cannot be written.
    """
    model, why = compiled.model.clone(), _reasons(compiled)
    for node in model.nodes():
        place = get_placement(node)
        if place is not None:
            node.metadata_props["backend"] = place.backend
            node.metadata_props["precision"] = str(place.precision or "")
            if place.region is not None:
                node.metadata_props["region"] = str(place.region)
        if reasons := why.get(node.name or ""):
            node.metadata_props["reason"] = short("; ".join(reasons), SENTENCE)
    model.save(path)


def save_for_model_explorer(compiled: CompiledModel, path: Path) -> None:
    """Write node data for Model Explorer: the backend of every node by its first output, with a color each.

    Raises:
        DovetailError: The file cannot be written.
    """
    graph = ResultGraph.of(compiled)
    places = [f"{place.backend}/{place.precision or 'no float'}" for place in graph.placements]
    colors = {place: _COLORS[number % len(_COLORS)] for number, place in enumerate(sorted(set(places)))}
    results: dict[str, Any] = {}
    for node, place in zip(graph.nodes, places):
        for value in node.outputs[:1]:
            results[value.name or ""] = {"value": place, "bgColor": colors[place], "textColor": "#000000"}
    name = compiled.model.graph.name or "main"
    data = {name: {"results": results}}
    write_text(path, json.dumps(data, indent=1) + "\n")


def _reasons(compiled: CompiledModel) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for remark in compiled.remarks:
        if remark.node:
            found.setdefault(remark.node, []).append(remark.why)
    return found
