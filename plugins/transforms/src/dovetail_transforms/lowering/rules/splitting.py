"""The sizes of Split: from a number of parts to sizes, and from an input to an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_transforms.lowering.node_facts import attribute, constant, extents, required_constant
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def _pattern(op, data, sizes=None):
    return op.Split(data, sizes)


def _constant_sizes(sizes: ir.Value | None) -> str:
    return "" if sizes is None or constant(sizes) is not None else f"its sizes ('{sizes.name}') are not constant"


def _split_to_attribute(op: Replacement, node: ir.Node, data: ir.Value, sizes: ir.Value | None):
    return op.like(node, data, split=None if sizes is None else required_constant(sizes).tolist())


def _parts(node: ir.Node, data: ir.Value) -> list[int] | None:
    """Return the sizes of the parts: equal ones, and what is left for the last. None if the extent is open."""
    known, count = extents(data), attribute(node, "num_outputs", len(node.outputs))
    extent = None if known is None else known[attribute(node, "axis", 0)]
    if extent is None:
        return None
    size = -(-extent // count)
    return [*[size] * (count - 1), extent - size * (count - 1)]


def _known_extent(node: ir.Node, data: ir.Value) -> str:
    found = _parts(node, data)
    if found is None:
        return f"the extent that it splits into {attribute(node, 'num_outputs')} parts is open"
    return "" if min(found) >= 0 else "it has more parts than elements"


def _split_sizes(op: Replacement, node: ir.Node, data: ir.Value):
    import numpy as np
    import onnx_ir as ir

    sizes = op.constant(ir.tensor(np.array(_parts(node, data), np.int64)), "sizes")
    return op.like(node, data, sizes, num_outputs=None)


RULES = (
    Rewrite("split-to-attribute", _pattern, _split_to_attribute, _constant_sizes),
    Rewrite("split-sizes", _pattern, _split_sizes, _known_extent),
)
