"""Operators that amplify rounding: sums that cancel, functions near one, and divisors that round to zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import float_name, is_onnx

from dovetail_precision.conditioning.findings import ConditioningFinding, Magnitudes, moves_data
from dovetail_precision.constant_range import LARGEST_FLUSHED
from dovetail_precision.ranges.instrument import ADDITIONS, MEANS
from dovetail_precision.ranges.intervals import Intervals
from dovetail_precision.ranges.range import NARROW, Range

if TYPE_CHECKING:
    import onnx_ir as ir


THRESHOLDS: Mapping[str, float] = {"bfloat16": 4.0, "float16": 32.0}
"""Largest ratio of operand to result of a sum. It leaves six significant bits of eight and of eleven."""
_GAIN = 4.0  # raising must reduce the error by this factor to be worth it


def find_amplified(
    nodes: Sequence[ir.Node], magnitudes: Magnitudes, is_product: Callable[[ir.Node], bool], name: str
) -> Iterator[ConditioningFinding]:
    """Find sums that cancel too many digits in float type `name`, and the producers whose results must stay unrounded.

    Errors are counted in units of one rounding. A sum multiplies the relative error of an operand by the ratio of
    operand to result. Beyond the threshold its operands must not be rounded: the sum is raised, and so are the
    producers of its operands, as long as their rounding errors still matter. Products end that: they are computed low
    and contribute one rounding anyway. So a sum is raised only if the error that products contribute is much smaller;
    raising a difference of two products gains nothing.

    Args:
        nodes: All nodes in topological order.
        magnitudes: Magnitudes of values.
        is_product: Whether a node is always computed low.
        name: The low type.
    """
    ratios = _suspects(nodes, magnitudes, THRESHOLDS[name])
    if not ratios:
        return
    brought: dict[int, float] = {}  # by the id of a value, its error if everything but products were computed high
    for node in nodes:
        error = 1.0 if is_product(node) else _propagated_error(node, magnitudes, brought)
        if error * _GAIN > ratios.get(id(node), math.inf):
            del ratios[id(node)]
        brought.update((id(value), error) for value in node.outputs)
    if ratios:
        yield from _with_producers(nodes, magnitudes, is_product, name, ratios)


def _suspects(nodes: Sequence[ir.Node], magnitudes: Magnitudes, threshold: float) -> dict[int, float]:
    """Return the ratio of operand to result, by the id of the sum, where it reaches the threshold."""
    found: dict[int, float] = {}
    for node in nodes:
        if node.op_type in ADDITIONS and is_onnx(node) and magnitudes.knows(node.outputs[0]):
            ratio = max(magnitudes.ratio(value, node.outputs[0]) for value in node.inputs if value is not None)
            if ratio >= threshold:
                found[id(node)] = ratio
    return found


def _propagated_error(node: ir.Node, magnitudes: Magnitudes, brought: Mapping[int, float]) -> float:
    errors = [
        brought[id(value)] * _error_factor(node, value, magnitudes)
        for value in node.inputs
        if value is not None and id(value) in brought
    ]
    return math.hypot(*errors) if node.op_type in ADDITIONS else max(errors, default=0.0)


def _error_factor(node: ir.Node, value: ir.Value, magnitudes: Magnitudes) -> float:
    """Return the factor by which `node` amplifies the relative error of `value`."""
    if not is_onnx(node):
        return 1.0
    result = node.outputs[0]
    if node.op_type in ADDITIONS:
        return magnitudes.likely_ratio(value, result)
    if node.op_type in MEANS:
        # Independent rounding errors average out: they grow with the square root of the number of elements.
        number = magnitudes.elements(value) / max(magnitudes.elements(result), 1)
        share = magnitudes.ratio(value, result) * (number if node.op_type == "ReduceSum" else 1.0)
        return share / math.sqrt(number) if number > 1 and share else 1.0
    return 1.0


def _with_producers(
    nodes: Sequence[ir.Node],
    magnitudes: Magnitudes,
    is_product: Callable[[ir.Node], bool],
    name: str,
    ratios: Mapping[int, float],
) -> Iterator[ConditioningFinding]:
    """Yield the sums in `ratios` and, backwards from them, the nodes that must not round their results."""
    # By the id of a value: the error that rounding it would add to a sum, relative to the sum's tolerance.
    needs: dict[int, tuple[float, str]] = {}
    for node in reversed(nodes):
        if not node.outputs or float_name(node.outputs[0]) is None:
            continue
        ratio = ratios.get(id(node), 0.0)
        need, why = max((needs.get(id(value), (0.0, "")) for value in node.outputs), default=(0.0, ""))
        if ratio:
            need = max(need, _GAIN / ratio)
            result, source = node.outputs[0], magnitudes.source(node.outputs[0])
            yield ConditioningFinding(
                (node,), f"its inputs are {ratio:.3g} times its result {source}", frozenset({name})
            )
            why = f"its result cancels in '{result.name}', which is {ratio:.3g} times smaller {source}"
        elif need < 1 or is_product(node):
            continue
        else:
            yield ConditioningFinding((node,), why, frozenset({name}))
        for value in node.inputs:
            if value is not None and float_name(value) is not None:
                share = need * _error_factor(node, value, magnitudes)
                if share >= 1 and share > needs.get(id(value), (0.0, ""))[0]:
                    needs[id(value)] = (share, why)


_DIVISOR = {"Div": 1, "Log": 0, "Reciprocal": 0}
# Zero exactly where the input is: a divisor after such an operator is also one before it.
_ZERO_PRESERVING = frozenset({"Abs", "Neg", "Sqrt"})
# Positive for every input, without a positive lower bound.
_POSITIVE = frozenset({"Exp", "Sigmoid", "Softmax", "Softplus"})


def find_epsilon_guards(
    nodes: Sequence[ir.Node], intervals: Intervals, measured: Mapping[int, Range]
) -> Iterator[ConditioningFinding]:
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
        if not is_onnx(node) or not node.outputs:
            continue
        result = node.outputs[0]
        behind = leading.get(id(result), [])
        if behind:
            smallest = _smallest(node, intervals.of(result), measured.get(id(result)))
            if smallest is not None:
                path = [node, *_path_nodes(behind, known)]
                yield ConditioningFinding(tuple(path), _why(result, smallest, behind[0].division), frozenset({NARROW}))
        port = divisor_port(node, intervals)
        if port is not None and float_name(node.inputs[port]) is not None:
            leading.setdefault(id(node.inputs[port]), []).append(_Step(node, node, []))
        if behind and (value := _passes_zero(node, intervals)) is not None and float_name(value) is not None:
            leading.setdefault(id(value), []).append(_Step(node, behind[0].division, behind))


class _Step(NamedTuple):
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


_NEAR_ONE = frozenset({"Acos", "Acosh", "Asin", "Atanh"})
_PROBABILITIES = frozenset({"Sigmoid", "Softmax"})
_BOUNDS = frozenset({"Clip", "Max", "Min"})
_MAX_STEPS = 12  # operators searched before an ill-conditioned one


def find_complements(
    nodes: Sequence[ir.Node], intervals: Intervals, is_product: Callable[[ir.Node], bool]
) -> Iterator[ConditioningFinding]:
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
        if not is_onnx(node) or not node.inputs:
            continue
        if node.op_type in _NEAR_ONE:
            path = _producers(node.inputs[0], is_product)
            yield ConditioningFinding((node, *path), f"'{node.name}' is ill-conditioned near one")
        elif (port := divisor_port(node, intervals)) is not None and (
            path := _path_from_probability(node, port, intervals)
        ):
            yield ConditioningFinding(
                (node, *path), f"'{node.name}' needs the distance of '{path[-1].outputs[0].name}' from one"
            )


def _path_from_probability(node: ir.Node, port: int, intervals: Intervals) -> list[ir.Node]:
    """Return the path from that port back to the operator that makes a probability; empty if there is none.

    A logarithm may read the probability itself; a division must read its complement.
    """
    path: list[ir.Node] = []
    value, complement = node.inputs[port], False
    for _ in range(_MAX_STEPS):
        maker = value.producer() if value is not None else None
        if maker is None or not is_onnx(maker):
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
