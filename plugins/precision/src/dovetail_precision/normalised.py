"""Find quotients that normalise: a value, or what is left of it without its mean, over its own deviation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.required import input_of

from dovetail_precision.conditioning.data_movement import is_standard

if TYPE_CHECKING:
    import onnx_ir as ir


_QUOTIENTS = frozenset({"Div", "Mul"})
_ROOTS = frozenset({"Pow", "Sqrt"})
_BETWEEN = frozenset({"Abs", "Add", "Clip", "Div", "Max", "Mul", "Reciprocal"}) | _ROOTS  # with constants
_MEANS = frozenset({"GlobalAveragePool", "ReduceMean", "ReduceSum"})
_LONGEST = 8  # nodes between a mean square and the quotient


def find_normalised(nodes: Sequence[ir.Node], is_constant: Callable[[ir.Value], bool]) -> set[int]:
    """Return the `id` of every node that computes v / sqrt(E[v^2] + e), as layer norms and RMS norms end.

    The deviation needs float32, and so does the quotient. Its result is of size one whatever v was, so that readers in
    a low precision lose no more of it than of any other value: they need not be raised with it.

    Args:
        nodes: All nodes.
        is_constant: Whether a value is a weight.
    """
    if _MEANS.isdisjoint({node.op_type for node in nodes}):
        return set()
    found: set[int] = set()
    for node in nodes:
        if node.op_type not in _QUOTIENTS or not is_standard(node):
            continue
        one, other = node.inputs
        pairs = ((one, other), (other, one)) if node.op_type == "Mul" else ((one, other),)
        if any(_is_deviation(divisor, value, is_constant) for value, divisor in pairs):
            found.add(id(node))
    return found


def _is_deviation(divisor: ir.Value | None, value: ir.Value | None, is_constant: Callable[[ir.Value], bool]) -> bool:
    """Whether `divisor` is a root of a mean of the squares of `value`, or one over it."""
    rooted, current = False, divisor
    for _ in range(_LONGEST):
        node = current.producer() if current is not None else None
        if node is None or not is_standard(node):
            return False
        if node.op_type in _MEANS:
            return rooted and _is_square(input_of(node, 0).producer(), value)
        rooted = rooted or node.op_type in _ROOTS
        varying = [read for read in node.inputs if read is not None and not is_constant(read)]
        if node.op_type not in _BETWEEN or len(varying) != 1:
            return False
        current = varying[0]
    return False


def _is_square(node: ir.Node | None, value: ir.Value | None) -> bool:
    if node is None or not is_standard(node):
        return False
    if node.op_type == "Pow":
        return node.inputs[0] is value
    return node.op_type == "Mul" and all(read is value for read in node.inputs)
