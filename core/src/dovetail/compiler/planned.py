"""Building the plan of a compilation from the annotations of its model, with what became of every source node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir.origin import origin_of
from dovetail.planning.node_keys import identity, operator_name, structural_keys, walk
from dovetail.planning.placement import Placement, get_placement, kind_of
from dovetail.planning.plan import Plan, PlannedBackend, PlannedNode, SourceNode

if TYPE_CHECKING:
    import onnx_ir as ir

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
        sources=lost_nodes(source, model) if source is not None else [],
        source=model.path,
        registry=ctx.plugins.registry if ctx and ctx.plugins else None,
    )


def _planned_backend(backend: Backend, ctx: Context) -> PlannedBackend:
    choice = next((one for one in ctx.request.backends if one.name == backend.name), None)
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


class _Node(NamedTuple):
    """The fields of a node needed here, from a proto or from a graph."""

    name: str
    domain: str
    op_type: str
    inputs: Sequence[str]
    outputs: Sequence[str]


def lost_nodes(source: Model, model: Model) -> list[SourceNode]:
    """Return the nodes of `source` that `model`, compiled from it, no longer has, in the order of `source`."""
    owners: dict[str, ir.Node] = {}
    computed: dict[str, ir.Node] = {}
    constants: set[str] = set()
    for _, graph in model.graphs():
        constants.update(graph.initializers)
        for node in graph:
            for name in origin_of(node):
                owners.setdefault(name, node)
            for value in node.outputs:
                computed.setdefault(value.name or "", node)
    lost, alive = [], []
    for old in _nodes(source):
        owner = owners.get(old.name) if old.name else None
        owner = owner or next((computed[name] for name in old.outputs if name in computed), None)
        if owner is not None and owner.op_type == old.op_type:
            alive.append(old)
        else:
            lost.append((old, owner))
    if not lost:
        return []
    alive_inputs = {*source.interface()[1], *(name for old in alive for name in old.inputs)}
    functions, found = _functions(source), []
    for old, owner in lost:
        if owner is not None:
            fate = f"folded into {owner.name}"
        elif (old.domain, old.op_type) in functions:
            fate = "inlined: replaced by the nodes of the function"
        elif any(name in constants for name in old.outputs):
            fate = "folded: its result is a constant"
        elif any(name in alive_inputs for name in old.outputs):
            fate = "removed: its readers read its input instead"
        else:
            fate = "removed: nothing reads its result"
        name = old.name or "_".join([old.op_type, *old.outputs[:1]])
        found.append(SourceNode(name, operator_name(old.domain, old.op_type), fate))
    return found


def _nodes(model: Model) -> Iterator[_Node]:
    """Yield every node of the model and its bodies, without building a lazy model."""
    if model.lazy is not None:
        for node in model.lazy.nodes():
            yield _Node(node.name, node.domain, node.op_type, node.input, node.output)
        return
    for node in model.nodes():
        names = (tuple(v.name or "" for v in values if v is not None) for values in (node.inputs, node.outputs))
        yield _Node(node.name or "", node.domain, node.op_type, *names)


def _functions(model: Model) -> set[tuple[str, str]]:
    if model.lazy is not None:
        return model.lazy.functions()
    return {(function.domain, function.name) for function in model.ir.functions.values()}
