"""Building the plan of a compilation from the annotations of its model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.ir.origin import origin_of
from dovetail.planning.node_keys import identity, structural_keys, walk
from dovetail.planning.placement import Placement, get_placement, kind_of
from dovetail.planning.plan import Plan, PlannedBackend, PlannedNode, SourceNode

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.context import Context


def plan_of(model: Model, ctx: Context | None = None, source: Model | None = None) -> Plan:
    """Build the plan from the annotations of `model`.

    Args:
        model: A placed model.
        ctx: The run that placed the model, for its remarks and joins.
        source: The model before the run, to report nodes that are gone.
    """
    keys = structural_keys(model)
    nodes, regions = [], set()
    for path, node in walk(model):
        placement = get_placement(node) or Placement()
        regions.add(placement.region)
        nodes.append(PlannedNode(
            node.name or "", identity(path, node), keys[id(node)], node.op_type, placement.backend,
            placement.precision, node.domain, origin_of(node), placement.region, kind_of(node), placement.ports,
        ))  # fmt: skip
    coverage = dict(Counter(node.backend for node in nodes).most_common())
    joins = list(ctx.round.joins) if ctx else []
    return Plan(
        {**_file_of(model), "nodes": len(nodes)},
        [_planned_backend(backend, ctx) for backend in ctx.backends] if ctx else [],
        nodes,
        joins,
        edits=[edit.as_dict() for edit in ctx.round.edits] if ctx else [],
        remarks=list(ctx.remarks) if ctx else [],
        summary={"coverage": coverage, "regions": len(regions - {None}), "joins": len(joins)},
        request=ctx.request.recorded() if ctx and ctx.request.plan is None else None,
        sources=_lost_nodes(source, model),
        source=model.path,
        registry=ctx.plugins.registry if ctx and ctx.plugins else None,
    )


def _planned_backend(backend: Backend, ctx: Context) -> PlannedBackend:
    choice = ctx.request.choice(backend.name)
    options = {**(choice.observer_options if choice is not None else {}), **backend.chosen}
    origin = ctx.plugins.provenance(backend.name) if ctx.plugins is not None else {}
    return PlannedBackend(backend.name, ctx.strategy_of(backend), options=options, **origin)


def _file_of(model: Model) -> dict[str, str]:
    """Return name and folder of the source model's file; the folder only if it is below the working directory."""
    if model.path is None:
        return {"path": ""}
    try:
        folder = model.path.resolve().parent.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        folder = "."
    return {"path": model.path.name, **({"folder": folder} if folder != "." else {})}


def _lost_nodes(source: Model | None, model: Model) -> list[SourceNode]:
    lost = source.dialect.lost_nodes(source, model) if source is not None and source.dialect is not None else ()
    return [SourceNode(*one) for one in lost]
