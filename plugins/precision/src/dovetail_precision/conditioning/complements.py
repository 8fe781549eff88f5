"""Operators that are ill-conditioned near one: `log(p)`, `log(1 - p)`, `a / (1 - p)`, `acos(c)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

from dovetail_precision.conditioning.data_movement import is_standard, moves_data
from dovetail_precision.conditioning.epsilon_guards import divisor_port
from dovetail_precision.conditioning.finding import Finding
from dovetail_precision.ranges.intervals import Intervals

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["find_complements"]

_NEAR_ONE = frozenset({"Acos", "Acosh", "Asin", "Atanh"})
_PROBABILITIES = frozenset({"Sigmoid", "Softmax"})
_BOUNDS = frozenset({"Clip", "Max", "Min"})
_MAX_STEPS = 12  # operators before one that is ill-conditioned


def find_complements(
    nodes: Sequence[ir.Node], intervals: Intervals, is_product: Callable[[ir.Node], bool]
) -> Iterator[Finding]:
    """Operators whose result depends on how far their operand is from one, with what makes the operand.

    Below one a low type with b bits has steps of 2^-b. A chance of 0.9999 becomes one, its logarithm zero instead of
    -1e-4, and what divides by its complement divides by zero. So from the operator that makes the chance everything
    stays high up to the logarithm or division. Where a chance only gates what it is multiplied with, its steps do no
    harm. Inverse sines and cosines stay high with what computes their operand, back to the last product.

    Args:
        nodes: All nodes; a node comes after those whose results it reads.
        intervals: The intervals of the values.
        is_product: Whether a node is computed low whatever is around it.
    """
    for node in nodes:
        if not is_standard(node) or not node.inputs:
            continue
        if node.op_type in _NEAR_ONE:
            way = _behind(node.inputs[0], is_product)
            yield Finding((node, *way), f"'{node.name}' turns on digits that its operand has near one")
        elif (port := divisor_port(node, intervals)) is not None and (
            way := _path_from_probability(node, port, intervals)
        ):
            yield Finding((node, *way), f"'{node.name}' turns on how far from one '{way[-1].outputs[0].name}' is")


def _path_from_probability(node: ir.Node, port: int, intervals: Intervals) -> list[ir.Node]:
    """What leads from a chance to that port, the operator that makes the chance last; nothing if none does.

    A logarithm may read the chance itself, everything else reads its complement.
    """
    way: list[ir.Node] = []
    value, complement = node.inputs[port], False
    for _ in range(_MAX_STEPS):
        maker = value.producer() if value is not None else None
        if maker is None or not is_standard(maker):
            return []
        way.append(maker)
        if maker.op_type in _PROBABILITIES:
            return way if complement or node.op_type == "Log" else []
        first = maker.inputs[0]
        if maker.op_type == "Sub" and not complement and intervals.of(first).low == intervals.of(first).high == 1:
            value, complement = maker.inputs[1], True
        elif maker.op_type in _BOUNDS or moves_data(maker):
            value = first
        elif maker.op_type == "Add":
            value = maker.inputs[1] if first.const_value is not None else first
        else:
            return []
    return []


def _behind(value: ir.Value | None, is_product: Callable[[ir.Node], bool]) -> list[ir.Node]:
    """What makes `value`, back to the results of products and inputs, a few operators at most."""
    found: dict[int, ir.Node] = {}
    waiting = [value]
    while waiting and len(found) < _MAX_STEPS:
        current = waiting.pop(0)
        maker = current.producer() if current is not None and float_name(current) is not None else None
        if maker is not None and not is_product(maker):
            found[id(maker)] = maker
            waiting.extend(maker.inputs)
    return list(found.values())
