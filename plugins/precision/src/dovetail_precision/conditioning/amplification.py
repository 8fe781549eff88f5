"""Cancellation in sums: the result is much smaller than the operands, by data or intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

from dovetail_precision.conditioning.data_movement import is_standard
from dovetail_precision.conditioning.finding import Finding
from dovetail_precision.conditioning.magnitudes import Magnitudes
from dovetail_precision.ranges.reductions import ADDITIONS, MEANS

if TYPE_CHECKING:
    import onnx_ir as ir


THRESHOLDS: Mapping[str, float] = {"bfloat16": 4.0, "float16": 32.0}
"""Largest ratio of operand to result of a sum. It leaves six significant bits of eight and of eleven."""
_GAIN = 4.0  # raising must reduce the error by this factor to be worth it


def find_amplified(
    nodes: Sequence[ir.Node], magnitudes: Magnitudes, is_product: Callable[[ir.Node], bool], name: str
) -> Iterator[Finding]:
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
        if node.op_type in ADDITIONS and is_standard(node) and magnitudes.knows(node.outputs[0]):
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
    if not is_standard(node):
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
) -> Iterator[Finding]:
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
            yield Finding((node,), f"its inputs are {ratio:.3g} times its result {source}", frozenset({name}))
            why = f"its result cancels in '{result.name}', which is {ratio:.3g} times smaller {source}"
        elif need < 1 or is_product(node):
            continue
        else:
            yield Finding((node,), why, frozenset({name}))
        for value in node.inputs:
            if value is not None and float_name(value) is not None:
                share = need * _error_factor(node, value, magnitudes)
                if share >= 1 and share > needs.get(id(value), (0.0, ""))[0]:
                    needs[id(value)] = (share, why)
