"""Ask strategies what might bring a node to their backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin.isolation import calling

if TYPE_CHECKING:
    from dovetail.plugin import Remedy

    from dovetail_placement.claiming import Claiming

__all__ = ["remedies_of"]


def remedies_of(claiming: Claiming, name: str) -> list[tuple[str, Remedy]]:
    """What the strategies suggest for the node `name`, with the backends that they speak for.

    Raises:
        DovetailError: A strategy fails.
    """
    node = next((node for node in claiming.flat.nodes if name in (node.name, *(v.name for v in node.outputs))), None)
    found: list[tuple[str, Remedy]] = []
    for backend in claiming.ctx.backends if node is not None else ():
        strategy, who = claiming.strategy_of(backend)
        if hasattr(strategy, "remedies") and claiming.claimed[id(node)][0] != backend.name:
            with calling(f"{who} asked for remedies,"):
                found += [(backend.name, remedy) for remedy in strategy.remedies(claiming.view_of(backend), node)]
    return found
