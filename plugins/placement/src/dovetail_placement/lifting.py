"""Conversions of a source in integers, lifted from the graph for backends that quantize by scales of their own.

A backend whose file does not list DequantizeLinear takes operators on floats, with constant weights, and quantizes them
itself. A source in integers looks to it like single operators between foreign ones. So before anything is placed, each
pair of a QuantizeLinear and its DequantizeLinear leaves the graph, and the value keeps its scale
(`source_scales.lifted_scale`). Formats that fit adopt it, so that the integers are those of the source. Whatever reads
the value in floats in the end reads it through these conversions again (`restored_conversions` of `dovetail-quantize`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, dtype_of, gc_paused, graph_of, input_of, insert_after_value, is_onnx
from dovetail.planning import origin_of, set_origin
from dovetail_onnx.signatures import Signatures, input_name, output_name

from dovetail_placement.legality import Judges
from dovetail_placement.source_scales import QdqNode, dequantized, lifted_scale, qdq_of, set_lifted_scale

if TYPE_CHECKING:
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend, Judge

    from dovetail_placement.source_scales import SourceScale

RULE = "source-scales"

_MOVES = frozenset({
    "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Resize", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that move integers, or choose among them, and give the same integers of the same scale."""
_NOT_NEGATIVE = frozenset({"Relu", "Sigmoid", "Softmax"})


def lifts(backend: Backend) -> bool:
    """Check whether a backend quantizes by scales of its own, and takes no conversion of the source as it is."""
    return backend.has_integers and not backend.takes("", "DequantizeLinear")


def lift_conversions(model: Model, ctx: Context) -> bool:
    """Lift the conversions of the main graph for those backends of a request that need it.

    Returns:
        Whether anything changed.
    """
    if not any(node.op_type == "DequantizeLinear" and is_onnx(node) for node in model.graph):
        return False
    chosen = [backend for backend in ctx.backends if ctx.refusals.given_up(backend.name) is None]
    own = [backend for backend in chosen if lifts(backend)]
    reading = [backend for backend in chosen if backend.takes("", "DequantizeLinear")]
    with gc_paused():
        folded = bool(reading) and _fold_biases(model, ctx, reading)
        return bool(own) and _Lifting(model, ctx, own).run() or folded


def _fold_biases(model: Model, ctx: Context, backends: Sequence[Backend]) -> bool:
    """Fold the conversions of int32 constants, such as biases, where a backend takes those of other integers only."""
    judges, count = ctx.analysis(Judges, model), 0
    for node in list(model.graph):
        qdq = qdq_of(node) if node.op_type == "DequantizeLinear" else None
        if qdq is None or qdq.element != "int32" or any(qdq.parameters.zero_point):
            continue
        if any(judges.of(backend)(node).ok is False for backend in backends):
            count += _fold(model.graph, qdq) is not None
    if count:
        ctx.count("biases in floats", count)
        model.touch()
    return bool(count)


def _fold(graph: ir.Graph, qdq: QdqNode) -> ir.Value | None:
    """Replace the conversion of a constant by its numbers, which are computed when they are read; return these."""
    value, stored = qdq.floats, qdq.integers
    if qdq.scale.integers is None or value.is_graph_output():
        return None
    numbers = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=dequantized(qdq.scale, value))
    value.replace_all_uses_with(numbers)
    _remove(qdq.node)
    graph.register_initializer(numbers)
    if not stored.uses() and not stored.is_graph_output():
        del graph.initializers[str(stored.name)]
    return numbers


def _remove(node: ir.Node) -> None:
    graph_of(node).remove(node, safe=True)
    for value in node.outputs:
        value.name = None


class _Lifting:
    """The conversions of one model.

    Args:
        model: The model.
        ctx: The run.
        backends: The backends to lift for.
    """

    def __init__(self, model: Model, ctx: Context, backends: Sequence[Backend]):
        self._model, self._graph, self._ctx, self._backends = model, model.graph, ctx, backends
        self._names = ctx.analysis(FreshNames, model)
        self._signatures = Signatures(model.ir.opset_imports)

    def run(self) -> bool:
        """Lift weights first, because backends take products with constant weights only."""
        weights = sum(self._lift_weight(qdq) for qdq in self._qdq_nodes("DequantizeLinear"))
        moved = sum(self._move_floats(node) for node in list(self._graph))
        if weights or moved:
            self._model.touch()
        judges = self._ctx.analysis(Judges, self._model)
        judged = [(backend, judges.of(backend)) for backend in self._backends]
        values = sum(self._lift_value(qdq, judged) for qdq in self._qdq_nodes("QuantizeLinear"))
        if values:
            self._model.touch()
        if weights or values:
            names = ", ".join(backend.name for backend in self._backends)
            why = f"{values} values and {weights} weights that the source has in integers keep their scales for {names}"
            self._ctx.remark("analysis", "", RULE, why)
            self._ctx.count("lifted", values + weights)
        return bool(weights or moved or values)

    def _qdq_nodes(self, operator: str) -> Iterator[QdqNode]:
        for node in list(self._graph):
            if node.op_type == operator and (qdq := qdq_of(node)) is not None and qdq.group is None:
                yield qdq

    def _lift_weight(self, qdq: QdqNode) -> bool:
        numbers = _fold(self._graph, qdq)
        if numbers is not None:
            set_lifted_scale(numbers, qdq.scale)
        return numbers is not None

    # Operators that move integers

    def _move_floats(self, node: ir.Node) -> bool:
        """Let an operator that moves integers of a known scale move the numbers that these stand for."""
        source = node.inputs[0] if node.inputs else None
        if source is None or not _moves(node) or not any(one.takes("", node.op_type) for one in self._backends):
            return False
        made = source.producer()
        qdq = qdq_of(made) if made is not None and made.op_type == "QuantizeLinear" else None
        results = [value for value in node.outputs if value.name]
        if made is None or qdq is None or qdq.axis is not None or not all(value.uses() for value in results):
            return False
        if node.op_type == "Pad" and not self._pads_with_floats(node, qdq.scale, qdq.floats):
            return False
        floats, scale = dtype_of(qdq.floats), made.inputs[1:]
        before = self._make("DequantizeLinear", [source, *scale], node, floats, source.shape)
        self._graph.insert_before(node, before)
        node.replace_input_with(0, before.outputs[0])
        for value in results:
            after = self._make("QuantizeLinear", [value, *scale], node, dtype_of(value), value.shape)
            moved = after.outputs[0]
            for user, index in [use for use in value.uses() if use.node is not after]:
                user.replace_input_with(index, moved)
            if value.is_graph_output():
                for index, output in enumerate(self._graph.outputs):
                    if output is value:
                        self._graph.outputs[index] = moved
                value.name, moved.name = moved.name, value.name
            value.type = ir.TensorType(floats)
            self._graph.insert_after(node, after)
        return True

    def _pads_with_floats(self, node: ir.Node, scale: SourceScale, like: ir.Value) -> bool:
        """Let a Pad pad with the number that its integer stands for; return False if that is not constant."""
        if node.attributes.get_string("mode", "constant") != "constant":
            return True
        given = node.inputs[2] if len(node.inputs) > 2 else None
        if given is not None and (given.const_value is None or given.is_graph_input()):
            return False
        integer = 0 if given is None else int(given.const_value.numpy().item())  # type: ignore[union-attr]
        (step,), (zero,) = scale.parameters
        tensor = ir.Tensor(np.asarray((integer - zero) * step, dtype_of(like).numpy()))
        tensor.name = self._names.fresh(f"{node.name}_constant")
        number = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        self._graph.register_initializer(number)
        node.resize_inputs(max(3, len(node.inputs)))
        node.replace_input_with(2, number)
        return True

    def _make(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        near: ir.Node,
        kind: ir.DataType,
        shape: ir.Shape | None,
    ) -> ir.Node:
        made = ir.node(operator, inputs, name=self._names.fresh(f"{near.name}_{operator}"))
        result = made.outputs[0]
        result.name, result.type, result.shape = self._names.fresh(f"{made.name}_out"), ir.TensorType(kind), shape
        set_origin(made, origin_of(near))
        return made

    # Values

    def _lift_value(self, qdq: QdqNode, judged: Sequence[tuple[Backend, Judge]]) -> bool:
        """Lift the conversions of a value if a format of a backend has its scale, or if backends compute and read it.

        Where the smallest integer of a scale that no format has stands for zero, the conversion is a Relu, too.
        """
        value, readers = qdq.floats, _backs(qdq)
        if not readers or value.is_initializer() or value.is_graph_output() or len(value.uses()) > 1:
            return False
        producer = value.producer()
        given = [] if producer is None else list(self._formats(producer, value, judged, True))
        uses = [(node, each.floats) for each in readers for node, _ in each.floats.uses()]
        read = [one for use in uses for one in self._formats(*use, judged)]
        if any(qdq.scale.parameters_in(format_, value) is not None for format_ in (*given, *read)):
            return self._lift(qdq, readers, False)
        if qdq.axis is not None or not given or not read:
            return False  # the host converts it, and the backend once more
        return self._lift(qdq, readers, qdq.scale.bounds()[0] == 0 and not _is_not_negative(value))

    def _formats(
        self, node: ir.Node, value: ir.Value, judged: Sequence[tuple[Backend, Judge]], gives: bool = False
    ) -> Iterator[Format]:
        """Yield the formats in integers in which backends compute or read a value at a node."""
        if node.graph is not self._graph:
            return
        signature = self._signatures(node)
        values, name = (node.outputs, output_name) if gives else (node.inputs, input_name)
        ports = [name(index, signature) for index, one in enumerate(values) if one is value]
        for _, judge in judged:
            verdict = judge(node)
            if verdict.ok is not False:
                yield from (one for port in ports for one in verdict.types.get(port, ()) if one.quantized)

    def _lift(self, qdq: QdqNode, readers: Sequence[QdqNode], clips: bool) -> bool:
        """Let readers read a value as it was before it was converted, apart from negative numbers if those are cut."""
        value = qdq.floats
        outputs = [str(each.floats.name) for each in readers if each.floats.is_graph_output()]
        producer = value.producer()
        if outputs and (producer is None or len(outputs) > 1 or value.is_graph_input()):
            return False
        for each in readers:
            each.floats.replace_all_uses_with(value, replace_graph_outputs=True)
        for each in readers:
            _remove(each.node)
        if not qdq.integers.uses() and not qdq.integers.is_graph_output():
            _remove(qdq.node)
        if clips:
            value = self._clipped(value)
        if outputs:
            value.name = outputs[0]
        set_lifted_scale(value, qdq.scale)
        return True

    def _clipped(self, value: ir.Value) -> ir.Value:
        """Return a value without negative numbers, which all of its readers read."""
        users = list(value.uses())
        producer = value.producer()
        assert producer is not None
        relu = self._make("Relu", [value], producer, dtype_of(value), value.shape)
        result = relu.outputs[0]
        for user, index in users:
            user.replace_input_with(index, result)
        for index, output in enumerate(self._graph.outputs):
            if output is value:
                self._graph.outputs[index] = result
        insert_after_value(self._graph, value, relu)
        return result


def _moves(node: ir.Node) -> bool:
    """Check whether a node gives some of the integers that it reads first, in their scale."""
    if node.op_type not in _MOVES or not is_onnx(node):
        return False
    if node.op_type == "Resize":
        return node.attributes.get_string("mode", "nearest") == "nearest"
    return node.op_type != "MaxPool" or len(node.outputs) == 1


def _backs(qdq: QdqNode) -> list[QdqNode]:
    """Return the conversions of the integers of a QuantizeLinear back to the same floats."""
    found = []
    for node, index in qdq.integers.uses():
        back = qdq_of(node) if node.op_type == "DequantizeLinear" and index == 0 else None
        if back is None or (back.parameters, back.axis) != (qdq.parameters, qdq.axis):
            continue
        if back.floats.dtype == qdq.floats.dtype and node.graph is qdq.node.graph:
            found.append(back)
    return found


def _is_not_negative(value: ir.Value) -> bool:
    """Check whether a value has no negative numbers, by the operator that computes it or the scale of what it moves."""
    producer = value.producer()
    if producer is None:
        return False
    if producer.op_type in _NOT_NEGATIVE:
        return True
    if producer.op_type not in (*_MOVES, "AveragePool", "GlobalAveragePool"):
        return False
    scale = lifted_scale(input_of(producer, 0))
    return scale is not None and scale.axis is None and scale.bounds()[0] >= 0
