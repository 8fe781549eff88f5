"""Ask strategies what might bring nodes to their backends."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dovetail.plugin.isolation import calling

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import Remedy

    from dovetail_placement.claiming import Claiming


def remedies_of(claiming: Claiming, names: Collection[str]) -> dict[str, list[tuple[str, Remedy]]]:
    """What the strategies suggest for nodes, with the backends that they speak for, by the given names.

    Args:
        claiming: The final claims of a round.
        names: Names of nodes, or of values that they give.

    Raises:
        DovetailError: A strategy fails.
    """
    wanted, found = set(names), {}
    for node in claiming.flat.nodes:
        for name in (node.name, *(value.name for value in node.outputs)):
            if name in wanted and name not in found:
                found[name] = _remedies(claiming, node)
    return found


def _remedies(claiming: Claiming, node: ir.Node) -> list[tuple[str, Remedy]]:
    found: list[tuple[str, Remedy]] = []
    for backend in claiming.ctx.backends:
        strategy, who = claiming.strategy_of(backend)
        if claiming.claimed[id(node)][0] != backend.name:
            with calling(f"{who} asked for remedies,"):
                found += [(backend.name, remedy) for remedy in strategy.remedies(claiming.view_of(backend), node)]
    return found
