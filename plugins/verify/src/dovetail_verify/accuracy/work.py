"""How much a node computes, from the shapes around it alone: what raising it costs, relative to other nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of

if TYPE_CHECKING:
    import onnx_ir as ir


Shapes = Mapping[str, tuple[int, ...]]
_OPEN = 64  # an extent that is not known
_UNKNOWN = 4096  # elements of a value whose rank is not known
_MOVED = 16  # multiply-adds in the time that one element is read or written

_CONVERTED = 64  # multiply-adds in the time that one element is converted, and fusions across the conversion are lost
_STARTED = 1e5  # multiply-adds in the time that an operator takes to start


def border_of(node: ir.Node, shapes: Shapes) -> float:
    """What a conversion behind `node` costs, in multiply-adds."""
    return _STARTED + _CONVERTED * sum(_elements(value, shapes) for value in node.outputs if value is not None)


def work_of(node: ir.Node, shapes: Shapes) -> float:
    """Multiply-adds, with those that could be done while its values are read and written.

    What multiplies and sums is told from shapes: an operand of two axes or more that does not broadcast to the result
    is summed over. That holds for products and convolutions whatever their operators are called.

    Args:
        node: The node.
        shapes: Shapes that were seen, by the name of the value; what is not there has its static shape.
    """
    operands = [value for value in node.inputs if value is not None]
    results = [value for value in node.outputs if value is not None]
    moved = sum(_elements(value, shapes) for value in (*operands, *results))
    if not results:
        return float(moved)
    result = _extents(results[0], shapes)
    summed = 1.0
    for value in operands:
        extents = _extents(value, shapes)
        if len(extents) > 1 and value.is_initializer() and not _broadcasts(extents, result):
            shared = max((extent for extent in extents if extent in result), default=1)
            summed = max(summed, math.prod(extents) / shared)
    if summed == 1.0 and len(operands) > 1 and len(result) > 1:
        first, second = (_extents(value, shapes) for value in operands[:2])
        if min(len(first), len(second)) > 1 and not (_broadcasts(first, result) and _broadcasts(second, result)):
            summed = math.sqrt(math.prod(first) * math.prod(second) / max(math.prod(result), 1))
    return math.prod(result) * (summed if summed > 1 else 0) + _MOVED * moved


def _extents(value: ir.Value, shapes: Shapes) -> list[int]:
    known = shapes.get(name_of(value))
    if known is not None:
        return list(known)
    if value.shape is None:
        return [_UNKNOWN]
    return [extent if isinstance(extent, int) and extent >= 0 else _OPEN for extent in value.shape.dims]


def _elements(value: ir.Value, shapes: Shapes) -> int:
    return math.prod(_extents(value, shapes))


def _broadcasts(extents: list[int], result: list[int]) -> bool:
    if len(extents) > len(result):
        return False
    return all(a in (1, b) for a, b in zip(reversed(extents), reversed(result)))
