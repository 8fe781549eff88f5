"""Nodes that reduce values to their ranges inside a graph.

A measurement is a row of three numbers: minimum, maximum, and smallest non-zero magnitude. In a matrix of rows the
first and the last are negated, so that matrices merge by their maximum; minus infinity marks values that were not
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.ir.fresh_names import FreshNames

from dovetail_precision.ranges.range import MASK

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


# Operators that sum, with their number of factors: products of two inputs, or one input.
SUMS = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "MatMul": 2, "ReduceMean": 1, "ReduceSum": 1}
# Element-wise sums, and means of elements up to a constant factor.
ADDITIONS = frozenset({"Add", "Sub", "Sum"})
MEANS = frozenset({"GlobalAveragePool", "ReduceMean", "ReduceSum"})
_PREFIX = "dovetail_range"


class Reductions:
    """Appends reduction nodes to the graphs of a model. Constants are in the main graph, visible to all bodies.

    Attributes:
        added: The nodes added to the main graph; callers may clear it.
        names: Names for what is added.
    """

    def __init__(self, model: Model):
        import numpy as np

        self._graph = model.graph
        self.added: list[ir.Node] = []
        self._axes_are_inputs = model.opset >= 18
        self.names = FreshNames.of(model.graph)
        self._mask = self._constant(np.float32(MASK))
        self._zero = self._constant(np.float32(0))
        self._infinity = self._constant(np.float32(np.inf))
        self._most = self._constant(np.full(1, np.inf, np.float32))
        self._least = self._constant(np.full(1, -np.inf, np.float32))
        self._turned = self._constant(np.array([-1, 1, -1], np.float32))
        self._flat = self._constant(np.array([-1], np.int64))
        self._rows = self._constant(np.array([-1, 3], np.int64))
        self._first = self._constant(np.array([0], np.int64))

    def range_of(self, graph: ir.Graph, value: ir.Value) -> ir.Value:
        """Return the row of `value`; masks and NaN count as zero."""
        flat = self._node(graph, "Reshape", value, self._flat)
        plain = self._node(
            graph, "Where", self._node(graph, "Less", self._node(graph, "Abs", flat), self._mask), flat, self._zero
        )
        size = self._node(graph, "Abs", plain)
        above = self._node(graph, "Where", self._node(graph, "Greater", size, self._zero), size, self._infinity)
        full = value.shape is not None and value.shape.is_static()
        numbers = [
            self._extreme(graph, which, of, full) for which, of in (("Min", plain), ("Max", plain), ("Min", above))
        ]
        return self._node(graph, "Concat", *numbers, axis=0)

    def sum_of(self, graph: ir.Graph, node: ir.Node) -> ir.Value:
        """Return the row of `node` applied to magnitudes; all three numbers are the largest sum."""
        summed = [self._node(graph, "Abs", value) for value in node.inputs[: SUMS[node.op_type]]]
        rest = [value for value in node.inputs[SUMS[node.op_type] :] if node.op_type.startswith("Reduce")]
        attributes = {name: attribute for name, attribute in node.attributes.items() if name not in ("alpha", "beta")}
        total = self._node(graph, node.op_type, *summed, *rest, **attributes)
        if node.op_type == "ReduceMean":
            sizes = [self._node(graph, "Size", value) for value in (summed[0], total)]
            count = self._node(graph, "Cast", self._node(graph, "Div", *sizes), to=1)
            total = self._node(graph, "Mul", total, count)
        largest = self._extreme(graph, "Max", self._node(graph, "Reshape", total, self._flat), full=False)
        return self._node(graph, "Concat", largest, largest, largest, axis=0)

    def matrix(self, graph: ir.Graph, rows: Sequence[ir.Value], matrices: Sequence[ir.Value]) -> ir.Value:
        """Concatenate rows and matrices to one matrix of shape (rows, 3)."""
        import onnx_ir as ir

        whole = list(matrices)
        if rows:
            joined = self._node(graph, "Reshape", self._node(graph, "Concat", *rows, axis=0), self._rows)
            whole.insert(0, self._node(graph, "Mul", joined, self._turned))
        found = self._node(graph, "Concat", *whole, axis=0)
        found.type, found.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([None, 3])
        return found

    def largest(self, graph: ir.Graph, stack: ir.Value, rows: int) -> ir.Value:
        """Merge a stack of matrices, of shape (any, rows, 3), by their maximum."""
        import numpy as np

        never = self._constant(np.full((1, rows, 3), -np.inf, np.float32))
        whole = self._node(graph, "Concat", stack, never, axis=0)
        if self._axes_are_inputs:
            return self._node(graph, "ReduceMax", whole, self._first, keepdims=0)
        return self._node(graph, "ReduceMax", whole, axes=[0], keepdims=0)

    def nothing(self, rows: int) -> ir.Value:
        """Return a matrix of `rows` rows that were not computed."""
        import numpy as np

        return self._constant(np.full((rows, 3), -np.inf, np.float32))

    def _extreme(self, graph: ir.Graph, which: str, flat: ir.Value, full: bool) -> ir.Value:
        """Return the smallest or largest element as a vector; an infinity is appended if `flat` may be empty."""
        if not full:
            flat = self._node(graph, "Concat", flat, self._most if which == "Min" else self._least, axis=0)
        return self._node(graph, f"Reduce{which}", flat, keepdims=1)

    def _node(self, graph: ir.Graph, operator: str, *inputs: ir.Value | None, **attributes) -> ir.Value:
        import onnx_ir as ir

        name = self.names.fresh(_PREFIX)
        node = ir.node(operator, inputs, {}, outputs=[ir.Value(name=name)], name=name)
        for key, given in attributes.items():
            if not isinstance(given, ir.Attr):
                given = ir.AttrInt64s(key, given) if isinstance(given, list) else ir.AttrInt64(key, given)
            node.attributes[key] = given
        graph.append(node)
        if graph is self._graph:
            self.added.append(node)
        return node.outputs[0]

    def _constant(self, array) -> ir.Value:
        import onnx_ir as ir

        tensor = ir.tensor(array, name=self.names.fresh(f"{_PREFIX}_constant"))
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        self._graph.register_initializer(value)
        return value
