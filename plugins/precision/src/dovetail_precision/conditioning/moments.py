"""Recognize means and products of values, in whatever operators a graph computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import float_name, is_onnx

from dovetail_precision.conditioning.findings import moves_data
from dovetail_precision.ranges.range import Range

if TYPE_CHECKING:
    import onnx_ir as ir


_MEANS = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"})
FOLLOWED = _MEANS | {"MatMul", "ReduceSumSquare"}
"""Operators that a mean needs: a graph without any of them has no moments."""


class Moment(NamedTuple):
    """A mean or a product, up to a constant factor.

    Attributes:
        of: The factors, by `id`; a single one for a mean.
        sign: Sign of the constant factor, 1 or -1.
    """

    of: frozenset[int]
    sign: int = 1


class Moments:
    """Tables of the values that are means, products, means of products or products of means of others.

    Data movement is transparent. Sums count as means, and factors that are a single constant or a count of elements
    are ignored.

    Attributes:
        means, products, means_of_products, products_of_means: By the `id` of a value, each a table of `Moment`.
    """

    def __init__(self, interval: Callable[[ir.Value | None], Range]):
        self._interval = interval
        self._roots: dict[int, int] = {}
        self._counts: set[int] = set()
        self.means: dict[int, Moment] = {}
        self.products: dict[int, Moment] = {}
        self.means_of_products: dict[int, Moment] = {}
        self.products_of_means: dict[int, Moment] = {}
        self._tables = (self.means, self.products, self.means_of_products, self.products_of_means)

    def root(self, value: ir.Value | None) -> int:
        """Return the `id` of the value that `value` is a moved copy of."""
        return self._roots.get(id(value), id(value))

    def is_factor(self, value: ir.Value | None) -> bool:
        """Check whether `value` is a single constant, or a count of elements."""
        if value is None or id(value) in self._counts:
            return value is not None
        if value.const_value is None:
            return False
        known = self._interval(value)
        return known.low == known.high

    def add(self, node: ir.Node) -> None:
        """Classify the result of `node`; call it in topological order."""
        if not is_onnx(node) or not node.outputs or float_name(node.outputs[0]) is None or not node.inputs:
            return
        operator, result, first = node.op_type, node.outputs[0], node.inputs[0]
        if first is None:
            return
        if moves_data(node):
            self._propagate(first, result)
            self._roots[id(result)] = self.root(first)
            if id(first) in self._counts:
                self._counts.add(id(result))
        elif operator in ("Cast", "CastLike"):
            self._counts.add(id(result))
        elif operator in _MEANS or operator == "MatMul" and self._is_row_sum(node):
            self._average(first, result)
        elif operator == "ReduceSumSquare":
            self.means_of_products[id(result)] = Moment(frozenset({self.root(first)}))
        elif operator == "Neg":
            self._propagate(first, result, -1)
        elif operator == "Pow":
            if self._number(node.inputs[1]) == 2:
                self._multiply(first, first, result)
        elif operator in ("Mul", "Div") and all(map(self.is_factor, node.inputs)) or operator == "Reciprocal":
            if self.is_factor(first):
                self._counts.add(id(result))
        elif operator == "Mul":
            self._product(node, result)
        elif operator == "Div" and self.is_factor(node.inputs[1]):
            self._propagate(first, result, self._sign(node.inputs[1]))

    def between(self, value: ir.Value, roots: frozenset[int], known: set[int] | None = None) -> list[ir.Node]:
        """Return the nodes that compute `value`, a moment, from the values in `roots`.

        Args:
            value: The moment.
            roots: The `id`s of the values it is a moment of.
            known: Nodes to skip, by `id`; the nodes found are added.
        """
        found: dict[int, ir.Node] = {}
        known = set() if known is None else known
        waiting = [value]
        while waiting:
            current = waiting.pop()
            node = current.producer()
            if self.root(current) in roots or node is None or id(node) in known or self.is_factor(current):
                continue
            found[id(node)] = node
            known.add(id(node))
            waiting.extend(read for read in node.inputs if read is not None and float_name(read) is not None)
        return list(found.values())

    def _product(self, node: ir.Node, result: ir.Value) -> None:
        first, second = node.inputs
        for factor, other in ((first, second), (second, first)):
            if self.is_factor(factor):
                self._propagate(other, result, self._sign(factor))
                return
        self._multiply(first, second, result)

    def _multiply(self, first: ir.Value | None, second: ir.Value | None, result: ir.Value) -> None:
        self.products[id(result)] = Moment(frozenset({self.root(first), self.root(second)}))
        one, other = self.means.get(id(first)), self.means.get(id(second))
        if one is not None and other is not None:
            self.products_of_means[id(result)] = Moment(one.of | other.of, one.sign * other.sign)

    def _average(self, value: ir.Value, result: ir.Value) -> None:
        self.means[id(result)] = self.means.get(id(value)) or Moment(frozenset({self.root(value)}))
        known = self.products.get(id(value)) or self.means_of_products.get(id(value))
        if known is not None:
            self.means_of_products[id(result)] = known

    def _propagate(self, value: ir.Value | None, result: ir.Value, sign: int = 1) -> None:
        for table in self._tables:
            known = table.get(id(value))
            if known is not None:
                table[id(result)] = Moment(known.of, known.sign * sign)

    def _number(self, value: ir.Value | None) -> float | None:
        known = self._interval(value) if value is not None and value.const_value is not None else None
        return known.low if known is not None and known.low == known.high else None

    def _sign(self, factor: ir.Value | None) -> int:
        return -1 if self._interval(factor).high < 0 else 1

    def _is_row_sum(self, node: ir.Node) -> bool:
        """Check whether a MatMul sums the rows of its first input: the second is a column of equal constants."""
        weights = node.inputs[1]
        shape = weights.shape if weights is not None and weights.const_value is not None else None
        return shape is not None and len(shape) > 1 and shape[-1] == 1 and self._number(weights) not in (None, 0.0)
