"""Facts about broadcasting that the limits of `bpu-int8` use; None where something is not known before run time.

An operand is broadcast along an axis where its extent is 1 and that of the result is not. Missing leading
extents are 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_bpu_int8.extents import extents_of

if TYPE_CHECKING:
    import onnx_ir as ir


def broadcast_first_axis(node: ir.Node) -> bool | None:
    """Whether an operand is broadcast along the first axis of the result; a single number, which has no axes, is not.

    Source: logs of the vendor's tool, where a product of a batch with a number is on the BPU.
    """
    flags = _broadcast(node)
    if flags is None:
        return None
    operands = [extents_of(value) for value in node.inputs if value is not None]
    numbers = [extents is not None and all(extent == 1 for extent in extents) for extents in operands]
    return any(axes[0] for axes, number in zip(flags, numbers, strict=True) if axes and not number)


def broadcast_operands(node: ir.Node) -> int | None:
    """How many operands are broadcast along some axis."""
    flags = _broadcast(node)
    return None if flags is None else sum(any(axes) for axes in flags)


def merged_rank(node: ir.Node) -> int | None:
    """The rank of the result with neighbouring axes merged along which nothing is broadcast."""
    flags = _broadcast(node)
    if flags is None:
        return None
    along = [any(axis) for axis in zip(*flags, strict=True)]
    return sum(broadcast or not i or along[i - 1] for i, broadcast in enumerate(along))


def listed_broadcast(node: ir.Node) -> bool | None:
    """Whether the batch axes of a MatMul are broadcast in one of the ways that the vendor lists.

    The first operand is broadcast along all of its batch axes or along none. The second one may keep leading axes and
    be broadcast along all behind them, unless the first is broadcast.
    """
    first, second = (extents_of(value) for value in node.inputs[:2])
    if first is None or second is None:
        return None
    rank = max(len(first), len(second))
    first, second = ([1] * (rank - len(extents)) + extents for extents in (first, second))
    pairs = list(zip(first[:-2], second[:-2], strict=True))
    ones = [one == 1 and other != 1 for one, other in pairs]
    others = [other == 1 and one != 1 for one, other in pairs]
    if any(ones):
        return all(ones)
    return others == sorted(others)


def _broadcast(node: ir.Node) -> list[list[bool]] | None:
    """For every operand, whether it is broadcast, axis by axis of the result."""
    after = extents_of(node.outputs[0])
    read = [value for value in node.inputs if value is not None]
    operands = [extents for value in read if (extents := extents_of(value)) is not None]
    if after is None or len(operands) < len(read) or any(len(extents) > len(after) for extents in operands):
        return None
    padded = [[1] * (len(after) - len(extents)) + extents for extents in operands]
    return [[one == 1 and other != 1 for one, other in zip(extents, after, strict=True)] for extents in padded]
