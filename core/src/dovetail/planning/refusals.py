"""What engines refused, on its way back to placement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dovetail.ir.bodies import all_nodes

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.planning.plan import Plan
    from dovetail.runtime.region_runner import Refusal

__all__ = ["Refusals", "nodes_to_refuse"]

Refusals = dict[str, dict[str, str]]
"""For each backend the nodes that its engine refuses, by name, with what the engine said."""


def nodes_to_refuse(
    plan: Plan, refusals: Iterable[Refusal], preferred: Mapping[str, str], whole: bool = False
) -> Refusals:
    """The nodes of `plan` that must go elsewhere, because the engine of their backend refuses them.

    An engine that names no node of the region refuses all of it. Conversions are no part of the plan; the nodes around
    a refused one stand for it.

    Args:
        plan: What was decided.
        refusals: What engines said when regions were loaded.
        preferred: The engine that each backend is made for; what another one refuses says nothing of the backend.
        whole: Refuse whole regions, whatever node the engine names.
    """
    planned = {node.name for node in plan.nodes}
    found: Refusals = {}
    for refusal in refusals:
        region = refusal.region
        if preferred.get(region.backend) != refusal.engine:
            continue
        named = None if whole else _named(region.nodes, refusal.error.node)
        nodes = {node.name for node in _around(named, region.nodes, planned)} if named is not None else set()
        nodes = nodes or {node.name for node in region.nodes if node.name in planned}
        found.setdefault(region.backend, {}).update(dict.fromkeys(sorted(nodes), refusal.error.message))
    return found


def _named(nodes: Iterable[ir.Node], name: str) -> ir.Node | None:
    """The node of that name, or the one that computes the value of that name; what is in a body counts for its holder.

    Engines also name what they made of a node (`conv_1/WithoutBiases`), so the part before the last slash counts, too.
    """
    names = [wanted for wanted in (name, name.rpartition("/")[0], name.partition("/")[0]) if wanted]
    for wanted in names:
        for node in nodes:
            parts = all_nodes([node])
            if any(wanted == part.name or wanted in (value.name for value in part.outputs) for part in parts):
                return node
    # Or what is named enters the region, and the engine stumbles over its first reader.
    reads = (node for node in nodes if any(value is not None and value.name in names for value in node.inputs))
    return next(reads, None)


def _around(node: ir.Node, region: Iterable[ir.Node], planned: set[str]) -> list[ir.Node]:
    if node.name in planned:
        return [node]
    inside = {id(other) for other in region}
    producers = [value.producer() for value in node.inputs if value is not None]
    around = [other for other in producers if other is not None and id(other) in inside and other.name in planned]
    if around:
        return around
    readers = [reader for value in node.outputs for reader, _ in value.uses()]
    return [reader for reader in readers if id(reader) in inside and reader.name in planned]
