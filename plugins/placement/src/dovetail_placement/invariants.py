"""Invariants of placements after the stages `place` and `outline`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph, used_values
from dovetail.planning import get_placement
from dovetail.plugin import Invariant

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


class Placed(Invariant):
    """Checked after `place`."""

    stage = "place"
    text = "every node is on a backend of the request or on the host"

    def violations(self, model: Model, ctx: Context) -> Iterator[str]:
        """Yield nodes without a backend, and nodes on a backend that is not in the request."""
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
        """Yield nodes without a number, and those that read from a region with a higher one."""
        numbers: dict[ir.Node | None, int] = {}
        for node in model.graph:
            placement = get_placement(node)
            if placement is None or placement.region is None:
                yield f"'{node.name}' has none"
            else:
                numbers[node] = placement.region
        for node in model.graph:
            for value in used_values(node):
                if numbers.get(value.producer(), 0) > numbers.get(node, 0):
                    yield f"'{node.name}' reads '{value.name}' from a region with a higher number"
