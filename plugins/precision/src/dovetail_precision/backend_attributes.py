"""Set the attributes that a backend file asks for at low precision: `set: {softmax_precision: 1}`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.planning.placement import placement_of
from dovetail_placement.place import claim_on

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import Context


def set_backend_attributes(nodes: Iterable[ir.Node], ctx: Context) -> bool:
    """Set the attributes listed in the claim of every node that was typed low.

    Returns:
        Whether any attribute changed.
    """
    from onnx_ir.convenience import convert_attribute

    low = {backend.name: backend.low for backend in ctx.backends}
    changed = False
    for node in nodes:
        claim = claim_on(node)
        if claim is None or not claim.set:
            continue
        placement = placement_of(node)
        if placement.precision is None or placement.precision.element != low.get(placement.backend):
            continue
        for name, value in claim.set.items():
            before = node.attributes.get(name)
            if before is None or before.value != value:
                node.attributes[name] = convert_attribute(name, value)
                why = f"{name} is {value}, as the file of {placement.backend} asks for in {placement.precision}"
                ctx.remark("passed", node, "set-attribute", why, source=claim.source)
                changed = True
    return changed
