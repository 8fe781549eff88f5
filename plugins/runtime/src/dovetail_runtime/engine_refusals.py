"""What engines refuse when regions are loaded, as refusals of the nodes of the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from dovetail.artifacts import nodes_of
from dovetail.ir.bodies import all_nodes

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_runtime.region_runner import Refusal


def refuse_nodes(refusals: Iterable[Refusal], preferred: Mapping[str, str], ctx: Context, whole: bool = False) -> None:
    """Refuse the nodes of the plan that must be placed elsewhere because the engine of their backend refuses them.

    An engine that names no node of a region refuses the whole region. Conversions are not in the plan, so the
    neighbours of a refused conversion are refused instead.

    Args:
        refusals: Errors of engines when regions were loaded.
        preferred: The first engine of each backend; refusals of other engines do not count against the backend.
        ctx: Has the model and its plan, and gets the refusals.
        whole: Refuse whole regions, whatever node the engine names.
    """
    model = cast("Model", ctx.model)
    planned = {node.name for node in (ctx.outcome.plan.nodes if ctx.outcome.plan is not None else model.nodes())}
    for refusal in refusals:
        region = refusal.region
        if preferred.get(region.backend) != refusal.engine:
            continue
        held = [inner for node in region.nodes for inner in nodes_of(model, node)]
        named = None if whole else named_in(held, refusal.error.node)
        nodes = _around(named, held, planned) if named is not None else []
        for node in nodes or [node for node in held if node.name in planned]:
            ctx.refuse(node, region.backend, refusal.error.message, rule="engine-refused", kind="failed")


def named_in(nodes: Iterable[ir.Node], name: str) -> ir.Node | None:
    """Return the node that an engine names: the one of that name, or that computes the value of that name.

    For a node in a body that is the control-flow node.

    Engines also derive names (`conv_1/WithoutBiases`), so the parts before the last and the first slash count, too.
    """
    names = [wanted for wanted in (name, name.rpartition("/")[0], name.partition("/")[0]) if wanted]
    for wanted in names:
        for node in nodes:
            parts = all_nodes([node])
            if any(wanted == part.name or wanted in (value.name for value in part.outputs) for part in parts):
                return node
    # Otherwise the name may be an input of the region, and its first reader is refused.
    reads = (node for node in nodes if any(value is not None and value.name in names for value in node.inputs))
    return next(reads, None)


def _around(node: ir.Node, region: Iterable[ir.Node], planned: Collection[str | None]) -> list[ir.Node]:
    if node.name in planned:
        return [node]
    inside = {id(other) for other in region}
    producers = [value.producer() for value in node.inputs if value is not None]
    around = [other for other in producers if other is not None and id(other) in inside and other.name in planned]
    if around:
        return around
    readers = [reader for value in node.outputs for reader, _ in value.uses()]
    return [reader for reader in readers if id(reader) in inside and reader.name in planned]
