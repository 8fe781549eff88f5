"""Instrument a model for range measurement: it returns values of the main graph whole, values of bodies as ranges.

Values in a body are reduced there, and the body gets one more output. An If returns the rows of the branch that ran; a
Loop or Scan returns one matrix per iteration, which are merged by their maximum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FreshNames, bodies, float_name, is_onnx, name_of
from dovetail.planning import given_regions

from dovetail_precision.ranges.range import MASK

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.planning import Region


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
        names: Names for the added nodes.
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


_PART = 32  # nodes; all values of one part are in memory at the same time
# The bodies of a SequenceMap cannot return ranges: its results are sequences.
_MEASURABLE = frozenset({"If", "Loop", "Scan"})


def measurable(model: Model, in_loops: bool = True) -> list[ir.Value]:
    """Return the values that can be measured: float32, and not known to be empty.

    Args:
        model: The model.
        in_loops: Whether values in bodies of Loop and Scan are among them.
    """
    return [
        value
        for graph in _measurable_graphs(model.graph, in_loops)
        for value in _values(graph)
        if value.name and float_name(value) == "float32" and not (value.shape is not None and 0 in value.shape)
    ]


class Instrumented(NamedTuple):
    """An instrumented copy of a model.

    Attributes:
        model: Returns values of the main graph, and matrices of rows as `Reductions` builds them.
        regions: The parts to run one after another: loading a graph with so many outputs at once is not linear.
        direct: The values of the main graph that it returns, by name.
        rows: For each matrix, by name, the body value that each row measures; for a row of sums, the result of the sum.
    """

    model: Model
    regions: list[Region]
    direct: dict[str, ir.Value]
    rows: dict[str, list[ir.Value]]


def instrumented(model: Model, values: Collection[ir.Value], sums: Collection[ir.Node]) -> Instrumented:
    """Return an instrumented copy of `model`; `model` is not changed, and weights are shared.

    Args:
        model: The model.
        values: Values of `model` whose ranges are measured.
        sums: Nodes in bodies of `model` whose sums of magnitudes are measured.
    """
    work = model.clone()
    reductions = Reductions(work)
    instrument = _Instrument(reductions, {id(value) for value in values}, {id(node) for node in sums})
    nodes = list(zip(model.graph, work.graph, strict=True))
    wanted = {id(value) for value in values}
    direct = {name_of(value): value for value in model.graph.inputs if id(value) in wanted}
    parts, outputs, rows = [], [], {}
    for start in range(0, len(nodes), _PART):
        part = nodes[start : start + _PART]
        for node, copy in part:
            for value, copied in zip(node.outputs, copy.outputs, strict=True):
                if id(value) in wanted:
                    direct[name_of(value)] = value
                    outputs.append(copied)
        matrix, about = instrument.measure_bodies(work.graph, part)
        parts.append([*(copy for _, copy in part), *reductions.added])
        reductions.added.clear()
        if matrix is not None:
            outputs.append(matrix)
            rows[name_of(matrix)] = about
    work.graph.outputs[:] = outputs
    work.touch()
    return Instrumented(work, given_regions(work.graph, parts), direct, rows)


class _Instrument:
    def __init__(self, reductions: Reductions, values: set[int], sums: set[int]):
        self._reductions = reductions
        self._values = values
        self._sums = sums

    def measure(
        self, work: ir.Graph, inputs: list[tuple[ir.Value, ir.Value]], nodes: list[tuple[ir.Node, ir.Node]]
    ) -> tuple[ir.Value | None, list[ir.Value]]:
        """Measure inputs and nodes of a body.

        Args:
            work: The graph of the copies.
            inputs, nodes: The originals with their copies.

        Returns:
            A matrix and the value that each row measures; None if there is nothing to measure.
        """
        rows, measured = [], []
        made = [pair for node, copy in nodes for pair in zip(node.outputs, copy.outputs, strict=True)]
        for value, copied in (*inputs, *made):
            if id(value) in self._values:
                rows.append(self._reductions.range_of(work, copied))
                measured.append(value)
        for node, copy in nodes:
            if id(node) in self._sums:
                rows.append(self._reductions.sum_of(work, copy))
                measured.append(node.outputs[0])
        matrices, inside = self._inside(work, nodes)
        if not measured and not inside:
            return None, []
        return self._matrix(work, rows, matrices), measured + inside

    def measure_bodies(
        self, work: ir.Graph, nodes: list[tuple[ir.Node, ir.Node]]
    ) -> tuple[ir.Value | None, list[ir.Value]]:
        """Measure the bodies of control-flow nodes; see `measure`."""
        matrices, inside = self._inside(work, nodes)
        return (self._matrix(work, [], matrices), inside) if inside else (None, [])

    def _inside(self, work: ir.Graph, nodes: list[tuple[ir.Node, ir.Node]]) -> tuple[list[ir.Value], list[ir.Value]]:
        matrices, inside = [], []
        for node, copy in nodes:
            if _is_measurable(node) and (found := self._add_body_outputs(node, copy)):
                matrices.append(self._added_output(work, copy, len(found)))
                inside.extend(found)
        return matrices, inside

    def _matrix(self, work: ir.Graph, rows: list[ir.Value], matrices: list[ir.Value]) -> ir.Value:
        return self._reductions.matrix(work, rows, matrices)

    def _add_body_outputs(self, node: ir.Node, copy: ir.Node) -> list[ir.Value]:
        """Add an output to the bodies of `copy` if they measure anything; return the measured values."""
        held = []
        for graph, body in zip(bodies(node), bodies(copy), strict=True):
            inputs = list(zip(graph.inputs, body.inputs, strict=True))
            held.append((body, *self.measure(body, inputs, list(zip(graph, body, strict=True)))))
        found = [one for _, _, measured in held for one in measured]
        before = 0
        for body, matrix, measured in held if found else ():
            after = len(found) - before - len(measured)
            around = [self._reductions.nothing(before)] if before else []
            around += [matrix] if matrix is not None else []
            around += [self._reductions.nothing(after)] if after else []
            body.outputs.append(self._matrix(body, [], around))
            before += len(measured)
        return found

    def _added_output(self, work: ir.Graph, copy: ir.Node, rows: int) -> ir.Value:
        """Return the added output of `copy` as one matrix, merged over iterations."""
        import onnx_ir as ir

        (body, *_) = bodies(copy)
        condition = copy.op_type == "Loop"
        copy.resize_outputs(len(body.outputs) - condition)
        for value in copy.outputs:
            value.name = value.name or ""
        for name in ("scan_output_axes", "scan_output_directions"):
            if name in copy.attributes:
                copy.attributes[name] = ir.AttrInt64s(name, [*copy.attributes[name].as_ints(), 0])
        given = copy.outputs[-1]
        given.name = self._reductions.names.fresh(f"{body.outputs[-1].name}_given")
        given.type = ir.TensorType(ir.DataType.FLOAT)
        return given if copy.op_type == "If" else self._reductions.largest(work, given, rows)


def _measurable_graphs(graph: ir.Graph, in_loops: bool) -> Iterator[ir.Graph]:
    """Yield a graph and the bodies in it that can be measured."""
    yield graph
    for node in graph:
        if _is_measurable(node) and (in_loops or node.op_type == "If"):
            for body in bodies(node):
                yield from _measurable_graphs(body, in_loops)


def _is_measurable(node: ir.Node) -> bool:
    return node.op_type in _MEASURABLE and is_onnx(node)


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *(value for node in graph for value in node.outputs)]
