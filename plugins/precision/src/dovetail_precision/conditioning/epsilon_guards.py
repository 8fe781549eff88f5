"""Positive divisors that round to zero in float16, such as values guarded by an epsilon of 1e-12."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

from dovetail_precision.conditioning.data_movement import is_standard, moves_data
from dovetail_precision.conditioning.finding import Finding
from dovetail_precision.constant_range import LARGEST_FLUSHED
from dovetail_precision.ranges.intervals import Intervals
from dovetail_precision.ranges.range import NARROW, Range

if TYPE_CHECKING:
    import onnx_ir as ir


_DIVISOR = {"Div": 1, "Log": 0, "Reciprocal": 0}
# Zero exactly where the input is: a divisor behind such an operator is also one before it.
_ZERO_PRESERVING = frozenset({"Abs", "Neg", "Sqrt"})
# Positive for every input, without a positive lower bound.
_POSITIVE = frozenset({"Exp", "Sigmoid", "Softmax", "Softplus"})


def find_epsilon_guards(
    nodes: Sequence[ir.Node], intervals: Intervals, measured: Mapping[int, Range]
) -> Iterator[Finding]:
    """Find divisions and logarithms of positive values that round to zero in float16.

    Everything from the producer of such a value to the division stays high, so that neither the value nor its root is
    rounded to zero on the path.

    Args:
        nodes: All nodes in topological order.
        intervals: The intervals of the values.
        measured: Measured ranges, by the `id` of a value.
    """
    leading: dict[int, list[_Step]] = {}  # by the id of a value, its readers that are divisions or lead to one
    known: set[int] = set()
    for node in reversed(nodes):
        if not is_standard(node) or not node.outputs:
            continue
        result = node.outputs[0]
        behind = leading.get(id(result), [])
        if behind:
            smallest = _smallest(node, intervals.of(result), measured.get(id(result)))
            if smallest is not None:
                path = [node, *_path_nodes(behind, known)]
                yield Finding(tuple(path), _why(result, smallest, behind[0].division), frozenset({NARROW}))
        port = divisor_port(node, intervals)
        if port is not None and float_name(node.inputs[port]) is not None:
            leading.setdefault(id(node.inputs[port]), []).append(_Step(node, node, []))
        if behind and (value := _passes_zero(node, intervals)) is not None and float_name(value) is not None:
            leading.setdefault(id(value), []).append(_Step(node, behind[0].division, behind))


@dataclass(frozen=True, slots=True)
class _Step:
    """A reader on a path to a division, with one such division and the next steps."""

    node: ir.Node
    division: ir.Node
    behind: list[_Step]


def _path_nodes(steps: list[_Step], known: set[int]) -> list[ir.Node]:
    """Return all nodes on the paths that begin with `steps`, except those in `known`; adds them to it."""
    found, waiting = [], list(steps)
    while waiting:
        step = waiting.pop()
        if id(step) not in known:
            known.add(id(step))
            found.append(step.node)
            waiting.extend(step.behind)
    return found


def divisor_port(node: ir.Node, intervals: Intervals) -> int | None:
    """Return the index of the input of `node` that must not be zero; None if there is none."""
    if node.op_type == "Pow":
        return 0 if intervals.of(node.inputs[1]).high < 0 else None
    return _DIVISOR.get(node.op_type)


def _passes_zero(node: ir.Node, intervals: Intervals) -> ir.Value | None:
    """Return the input of `node` that is zero exactly where the result is; None if there is none."""
    if node.op_type in _ZERO_PRESERVING or moves_data(node):
        return node.inputs[0]
    if node.op_type == "Pow":
        return node.inputs[0] if intervals.of(node.inputs[1]).low > 0 else None
    if node.op_type in ("Mul", "Div"):
        first, second = node.inputs
        if intervals.of(second).distance_from_zero and second is not None and second.const_value is not None:
            return first
        constant = first is not None and first.const_value is not None
        if node.op_type == "Mul" and constant and intervals.of(first).distance_from_zero:
            return second
    return None


def _smallest(node: ir.Node, interval: Range, measured: Range | None) -> float | None:
    """Return the smallest magnitude of a value if it rounds to zero in float16; 0 if it has no lower bound."""
    if 0 < interval.distance_from_zero <= LARGEST_FLUSHED:
        return interval.distance_from_zero
    if measured is not None:
        return measured.smallest if 0 < measured.smallest <= LARGEST_FLUSHED else None
    return 0.0 if node.op_type in _POSITIVE else None


def _why(value: ir.Value, smallest: float, division: ir.Node) -> str:
    if smallest == 0:
        how = f"may underflow in {NARROW}"
    else:
        how = f"may be as small as {smallest:.4g}, which rounds to zero in {NARROW}"
    what = {"Log": "the logarithm", "Pow": "the power"}.get(division.op_type, "the division")
    return f"{what} '{division.name}' reads '{value.name}', which {how}"
