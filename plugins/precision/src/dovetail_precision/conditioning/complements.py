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


_NEAR_ONE = frozenset({"Acos", "Acosh", "Asin", "Atanh"})
_PROBABILITIES = frozenset({"Sigmoid", "Softmax"})
_BOUNDS = frozenset({"Clip", "Max", "Min"})
_MAX_STEPS = 12  # operators searched before an ill-conditioned one


def find_complements(
    nodes: Sequence[ir.Node], intervals: Intervals, is_product: Callable[[ir.Node], bool]
) -> Iterator[Finding]:
    """Find operators whose result depends on how far their operand is from one, with the producers of the operand.

    Just below one, a type with b significant bits has a spacing of 2^-b. A probability of 0.9999 rounds to one: its
    logarithm becomes zero instead of -1e-4, and a division by its complement divides by zero. So the operator that
    makes the probability and everything up to the logarithm or division stay high. A probability that only gates
    another value is harmless. Inverse sines and cosines stay high with the producers of their operand, back to the
    last product.

    Args:
        nodes: All nodes in topological order.
        intervals: The intervals of the values.
        is_product: Whether a node is always computed low.
    """
    for node in nodes:
        if not is_standard(node) or not node.inputs:
            continue
        if node.op_type in _NEAR_ONE:
            path = _producers(node.inputs[0], is_product)
            yield Finding((node, *path), f"'{node.name}' is ill-conditioned near one")
        elif (port := divisor_port(node, intervals)) is not None and (
            path := _path_from_probability(node, port, intervals)
        ):
            yield Finding((node, *path), f"'{node.name}' needs the distance of '{path[-1].outputs[0].name}' from one")


def _path_from_probability(node: ir.Node, port: int, intervals: Intervals) -> list[ir.Node]:
    """Return the path from that port back to the operator that makes a probability; empty if there is none.

    A logarithm may read the probability itself; a division must read its complement.
    """
    path: list[ir.Node] = []
    value, complement = node.inputs[port], False
    for _ in range(_MAX_STEPS):
        maker = value.producer() if value is not None else None
        if maker is None or not is_standard(maker):
            return []
        path.append(maker)
        if maker.op_type in _PROBABILITIES:
            return path if complement or node.op_type == "Log" else []
        first = maker.inputs[0]
        if maker.op_type == "Sub" and not complement and intervals.of(first).low == intervals.of(first).high == 1:
            value, complement = maker.inputs[1], True
        elif maker.op_type in _BOUNDS or moves_data(maker):
            value = first
        elif maker.op_type == "Add":
            value = maker.inputs[1] if first is not None and first.const_value is not None else first
        else:
            return []
    return []


def _producers(value: ir.Value | None, is_product: Callable[[ir.Node], bool]) -> list[ir.Node]:
    """Return the producers of `value`, back to products and inputs, `_MAX_STEPS` at most."""
    found: dict[int, ir.Node] = {}
    waiting = [value]
    while waiting and len(found) < _MAX_STEPS:
        current = waiting.pop(0)
        maker = current.producer() if current is not None and float_name(current) is not None else None
        if maker is not None and not is_product(maker):
            found[id(maker)] = maker
            waiting.extend(maker.inputs)
    return list(found.values())
