"""Propagate constants beyond the range of float16 through selects, concatenations and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard

from dovetail.ir.types import float_name

from dovetail_precision.constant_range import LARGEST_FINITE, largest_magnitude
from dovetail_precision.ranges.interval_arithmetic import MOVEMENT
from dovetail_precision.ranges.range import NARROW

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.ranges.intervals import Intervals


_KEEPING = frozenset({"Add", "Concat", "ScatterElements", "ScatterND", "Sub", "Where"})


def propagate_large_constants(nodes: Sequence[ir.Node], intervals: Intervals) -> dict[int, float]:
    """Return the largest constant beyond float16 that a value may contain, by the `id` of the value.

    The result of `Where(hidden, -1e9, scores)` may contain -1e9 even if nothing was hidden in the data; cast to float16
    it would be infinite. A value that is only bounded by a constant need not reach it.

    Args:
        nodes: All nodes in topological order.
        intervals: The intervals of the values.
    """
    found: dict[int, float] = {}
    for node in nodes:
        if node.domain not in ("", "ai.onnx") or not node.outputs:
            continue
        if node.op_type in _KEEPING or node.op_type == "Mul" and _chooses(node, intervals):
            reached = max((_constant(value, intervals) for value in node.inputs if _is_float(value)), default=0.0)
        elif not found or node.op_type not in MOVEMENT:
            continue
        else:
            reached = 0.0
        if found:
            reached = max(reached, *(found.get(id(value), 0.0) for value in node.inputs))
        if reached:
            found.update((id(value), reached) for value in node.outputs if _is_float(value))
    return found


def _chooses(node: ir.Node, intervals: Intervals) -> bool:
    """Whether one factor of a product lies in [0, 1], as a mask does."""
    known = [intervals.of(value) for value in node.inputs]
    return any(one.low == 0 and one.high == 1 for one in known)


def _is_float(value: ir.Value | None) -> TypeGuard[ir.Value]:
    return float_name(value) is not None


def _constant(value: ir.Value, intervals: Intervals) -> float:
    """Return the largest magnitude of a constant if it is beyond float16 and no sentinel; else 0."""
    if value.const_value is None or not intervals.is_constant(value):
        return 0.0
    magnitude = intervals.constant_magnitude(value)
    if math.isnan(magnitude):
        magnitude = largest_magnitude(value.const_value)
    return magnitude if magnitude > LARGEST_FINITE[NARROW] else 0.0
