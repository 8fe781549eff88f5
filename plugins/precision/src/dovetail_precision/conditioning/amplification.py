"""PartialSums whose result is much smaller than what they add up, as data or intervals say."""

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

__all__ = ["THRESHOLDS", "find_amplified"]

THRESHOLDS: Mapping[str, float] = {"bfloat16": 4.0, "float16": 32.0}
"""How many times its result an operand of a sum may be: six bits of the result are left, of eight and of eleven."""
_GAIN = 4.0  # how many times smaller the error must become, or nothing is gained by raising


def find_amplified(
    nodes: Sequence[ir.Node], magnitudes: Magnitudes, is_product: Callable[[ir.Node], bool], name: str
) -> Iterator[Finding]:
    """PartialSums of float type `name` that lose too many digits, with the producers whose results must not be rounded.

    Errors are counted in units of one rounding. A sum multiplies the error of an operand by how many times its result
    the operand is. Where that is beyond the threshold, operands must arrive unrounded: the sum is computed high, and so
    is what makes the operands, for as long as its results still count. Products end that: they are computed low, and
    have an error of one rounding anyhow. So a sum is only raised if the errors that products bring along are much
    smaller; a difference of two products would gain nothing.

    Args:
        nodes: All nodes; a node comes after those whose results it reads.
        magnitudes: How large values are.
        is_product: Whether a node is computed low whatever is around it.
        name: The low type.
    """
    ratios = _suspects(nodes, magnitudes, THRESHOLDS[name])
    if not ratios:
        return
    brought: dict[int, float] = {}  # the error of a value, by id, if everything but products were computed high
    for node in nodes:
        error = 1.0 if is_product(node) else _propagated_error(node, magnitudes, brought)
        if error * _GAIN > ratios.get(id(node), math.inf):
            del ratios[id(node)]
        brought.update((id(value), error) for value in node.outputs)
    if ratios:
        yield from _with_producers(nodes, magnitudes, is_product, name, ratios)


def _suspects(nodes: Sequence[ir.Node], magnitudes: Magnitudes, threshold: float) -> dict[int, float]:
    """By the id of a sum, how many times its result its operands are, where that is beyond the threshold."""
    found: dict[int, float] = {}
    for node in nodes:
        if node.op_type in ADDITIONS and is_standard(node) and magnitudes.knows(node.outputs[0]):
            ratio = max(magnitudes.ratio(value, node.outputs[0]) for value in node.inputs)
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
    """How many times the relative error of `value` is in the result of `node`."""
    if not is_standard(node):
        return 1.0
    result = node.outputs[0]
    if node.op_type in ADDITIONS:
        return magnitudes.likely_ratio(value, result)
    if node.op_type in MEANS:
        # Errors of single elements cancel each other out as the elements do.
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
    """The sums in `ratios`, and backwards from them what must not round its results."""
    # By the id of a value: the error that rounding it would bring into a sum, as a share of what that may have.
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
            why = f"little is left of its result in '{result.name}', which is {ratio:.3g} times smaller {source}"
        elif need < 1 or is_product(node):
            continue
        else:
            yield Finding((node,), why, frozenset({name}))
        for value in node.inputs:
            if value is not None and float_name(value) is not None:
                share = need * _error_factor(node, value, magnitudes)
                if share >= 1 and share > needs.get(id(value), (0.0, ""))[0]:
                    needs[id(value)] = (share, why)
