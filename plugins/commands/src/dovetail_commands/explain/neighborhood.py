"""The neighborhood of a node as text: what it reads, what reads it, where all of these are, and conversions between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail import api
from dovetail.errors import DovetailError
from dovetail.plugin import CompiledModel

from dovetail_commands.plan_graph.contraction import PlanGraph
from dovetail_commands.plan_graph.result_graph import ResultGraph, type_of

if TYPE_CHECKING:
    from dovetail.planning import Plan, PlannedNode
    from dovetail.plugin import PluginSet

_SHOWN = 6  # neighbors at a side


def neighborhood(result: CompiledModel | Plan | str | Path, node: PlannedNode, plugins: PluginSet | None) -> list[str]:
    """Draw what is next to a node; no lines for a plan without its model, which does not have the edges.

    Args:
        result: As for `dovetail.explain`.
        node: The node.
        plugins: The plugins to load a saved result with.
    """
    if isinstance(result, (str, Path)):
        if not Path(result).is_dir():
            return []
        try:
            result = api.load(result, plugins)
        except DovetailError:  # the explanation does without the drawing
            return []
    if not isinstance(result, CompiledModel):
        return []
    graph = PlanGraph.of(result, ResultGraph.of(result))
    at = next((number for number, one in enumerate(graph.nodes) if one.output == node.output), None)
    return [] if at is None else list(_lines(graph, at))


def _lines(graph: PlanGraph, at: int) -> Iterator[str]:
    above, below = _sides(graph, at)
    for text in above[:_SHOWN]:
        yield f"  {text}"
    if len(above) > _SHOWN:
        yield f"  and {len(above) - _SHOWN} more"
    if above:
        yield "  │"
    yield f"  ▶ {_named(graph, at)}"
    shown = below[:_SHOWN]
    rest = len(below) - len(shown)
    for number, text in enumerate(shown):
        last = number == len(shown) - 1 and not rest
        yield f"  {'└' if last else '├'}─ {text}"
    if rest:
        yield f"  └─ and {rest} more"


def _sides(graph: PlanGraph, at: int) -> tuple[list[str], list[str]]:
    """Return texts of what a node reads and of what reads it, each across a conversion if there is one."""
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    types: dict[tuple[int, int], str] = {}
    for source, target, value in graph.edges:
        if at in (source, target) or source >= graph.first_join or target >= graph.first_join:
            into.setdefault(target, []).append(source)
            out.setdefault(source, []).append(target)
            types[source, target] = "" if value is None else type_of(value)
    above, below = [], []
    for source in into.get(at, ()):
        if source < graph.first_join:
            above.append(f"{_named(graph, source)}, {types[source, at]}")
        else:
            above += [f"{_named(graph, one)} ─ {_conversion(graph, source)}" for one in into.get(source, (source,))]
    for target in out.get(at, ()):
        if target < graph.first_join:
            below.append(_named(graph, target))
        else:
            below += [f"{_conversion(graph, target)} ─ {_named(graph, one)}" for one in out.get(target, ())]
    return above, below


def _named(graph: PlanGraph, item: int) -> str:
    if item >= graph.first_join:
        return _conversion(graph, item)
    if item >= graph.first_output:
        return f"output {graph.outputs[item - graph.first_output][0]}"
    if item >= graph.first_input:
        return f"input {graph.inputs[item - graph.first_input][0]}"
    node = graph.nodes[item]
    return f"{node.name or node.output} ({node.op_type}) on {node.backend}, {node.precision or 'no float'}"


def _conversion(graph: PlanGraph, item: int) -> str:
    join = graph.joins[item - graph.first_join]
    return f"◇ {join.kind} {join.held} to {join.wanted}"
