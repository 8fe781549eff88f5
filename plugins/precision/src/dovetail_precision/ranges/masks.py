"""Recognise integers that are boolean masks by how they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.ir.required import constant_of

from dovetail_precision.ranges.range import Range

if TYPE_CHECKING:
    import onnx_ir as ir


_STEPS = 16  # uses that are inspected
_MASK_FACTOR = 1e3  # a factor of `1 - x` from here on is a mask, such as -10000
_ALLOWED = frozenset(
    {"Cast", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze"}
)


def selects_mask(value: ir.Value, of: Callable[[ir.Value | None], Range]) -> bool:
    """Whether all uses of `value` compute `(1 - value) * constant` with a large constant, as for attention masks.

    Its elements can then only be 0 and 1.

    Args:
        value: The result of a Cast from integers.
        of: Returns the interval of a constant; sentinel masks have the interval of zero.
    """
    waiting, steps = [(value, False)], 0
    while waiting:
        current, taken = waiting.pop()
        readers = current.uses()
        if not readers or current.is_graph_output():
            return False
        for reader, index in readers:
            steps += 1
            if steps > _STEPS or reader.domain not in ("", "ai.onnx"):
                return False
            if taken and reader.op_type == "Mul":
                other = reader.inputs[1 - index]
                if other is None or other.const_value is None or not _is_mask_factor(other, of):
                    return False
                continue
            if reader.op_type not in _ALLOWED or reader.op_type != "Sub" and index:
                return False
            if reader.op_type == "Sub":
                one = of(reader.inputs[0])
                if index != 1 or one.low != 1 or one.high != 1:
                    return False
            waiting.append((reader.outputs[0], taken or reader.op_type == "Sub"))
    return True


def _is_mask_factor(constant: ir.Value, of: Callable[[ir.Value | None], Range]) -> bool:
    known = of(constant)
    # A constant that consists of sentinels has the interval of zero.
    return constant_of(constant).size == 1 and (known.low == known.high == 0 or abs(known.low) >= _MASK_FACTOR)
