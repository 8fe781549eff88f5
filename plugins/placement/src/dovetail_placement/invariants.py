"""What holds for placements after the stages `place` and `outline`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph
from dovetail.planning import get_placement, numbered_regions
from dovetail.plugin import Invariant

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


class Placed(Invariant):
    """Checked after `place`."""

    stage = "place"
    text = "every node is on a backend of the request or on the host"

    def violations(self, model: Model, ctx: Context) -> Iterator[str]:
        """Yield nodes that are nowhere, or elsewhere."""
        known = {*(backend.name for backend in ctx.backends), ctx.host.name}
        for node in ctx.analysis(FlatGraph, model).nodes:
            placement = get_placement(node)
            if placement is None or placement.backend not in known:
                yield f"'{node.name}' is {'nowhere' if placement is None else f'on {placement.backend}'}"


class Numbered(Invariant):
    """Checked after `outline`."""

    stage = "outline"
    text = "every node has the number of its region, and regions can run in the order of their numbers"

    def violations(self, model: Model, ctx: Context) -> Iterator[str]:
        """Yield the first node without a number, or say that the order is wrong."""
        if numbered_regions(model.graph) is None:
            without = (node for node in model.graph if (place := get_placement(node)) is None or place.region is None)
            node = next(without, None)
            yield f"'{node.name}' has none" if node is not None else "a region reads from one with a higher number"
