"""Emulation of narrow floats in float32: bfloat16, and float16 where ONNX Runtime omits rounding or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, graph_of, insert_after_value, producer_of, replace_uses_except
from dovetail.plugin import is_onnx

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


# Reductions that fail (1.31), by operator.
_FAILING = {"ScatterND": ("add", "mul", "max", "min"), "ScatterElements": ("add", "mul")}


def fails(node: ir.Node) -> bool:
    """Check whether the float16 kernel of `node` fails."""
    if node.op_type not in _FAILING or not is_onnx(node):
        return False
    low = node.outputs[0].dtype is not None and node.outputs[0].dtype.value == _FLOAT16
    return low and node.attributes.get_string("reduction", "none") in _FAILING[node.op_type]


def widen(node: ir.Node, names: FreshNames) -> None:
    """Compute `node` in float32: insert casts before its float16 inputs and after its result."""
    import onnx_ir as ir

    result = node.outputs[0]
    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype == result.dtype:
            cast = ir.node("Cast", [value], {"to": _FLOAT}, name=names.fresh(f"{node.name}/wide_{index}"))
            cast.outputs[0].name, cast.outputs[0].type = cast.name, ir.TensorType(ir.DataType.FLOAT)
            node.prepend(cast)
            node.replace_input_with(index, cast.outputs[0])
    back = ir.node("Cast", [result], {"to": _FLOAT16}, name=names.fresh(f"{node.name}/narrow"))
    given = back.outputs[0]
    given.type, given.shape = result.type, result.shape
    for reader, index in list(result.uses()):
        if reader is not back:
            reader.replace_input_with(index, given)
    graph = graph_of(node)
    for index, output in enumerate(graph.outputs):
        if output is result:
            graph.outputs[index] = given
    given.name, result.name = result.name, names.fresh(f"{node.name}/wide")
    result.type = ir.TensorType(ir.DataType.FLOAT)
    node.append(back)


KEPT = ["EliminateIdentity", "NchwcTransformer"]
"""Disabled optimizers: one would remove the Identity operators, one crashes on a convolution before a GRU (1.31)."""

EXACT = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Data movement: results of these operators are rounded already."""


def rounded(model: Model) -> Model | None:
    """Return a copy of `model` in which every float16 result is rounded; None if there is nothing to change."""
    if not any(_results(node) or fails(node) for node in model.nodes()):
        return None
    work = model.clone()
    names = FreshNames.of(work.graph)
    for node in list(work.nodes()):
        if fails(node):
            widen(node, names)
        for value in _results(node):
            _hold(graph_of(node), value, names)
    work.touch()
    return work


def _results(node: ir.Node) -> list[ir.Value]:
    if node.op_type in EXACT:
        return []
    return [
        value for value in node.outputs if value.dtype is not None and value.dtype.value == _FLOAT16 and value.uses()
    ]


def _hold(graph: ir.Graph, value: ir.Value, names: FreshNames) -> None:
    import onnx_ir as ir

    uses = [(node, index) for node, index in value.uses()]
    first = ir.node("Identity", [value], name=names.fresh(f"{value.name}/rounded_1"))
    second = ir.node("Identity", [first.outputs[0]], name=names.fresh(f"{value.name}/rounded_2"))
    for node in (first, second):
        node.outputs[0].name = node.name
        node.outputs[0].type = value.type
    insert_after_value(graph, value, first)
    insert_after_value(graph, first.outputs[0], second)
    for node, index in uses:
        node.replace_input_with(index, second.outputs[0])


_BFLOAT16, _FLOAT, _FLOAT16 = 16, 1, 10  # onnx.TensorProto.DataType
# Attributes that hold an element type: of a result, or of the computation.
_TYPES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision", "stash_type"})


def emulated(model: Model) -> Model | None:
    """Return a copy of `model` that computes bfloat16 operators in float32 and rounds their results.

    Inputs and outputs of the model keep their types. Returns None if the model has no bfloat16.
    """
    if not any(_is_low(value) for node in model.nodes() for value in (*node.inputs, *node.outputs)):
        return None
    work = model.clone()
    if work.ir.functions:
        from onnx_ir.passes.common import InlinePass

        InlinePass()(work.ir)
    names = FreshNames.of(work.graph)
    for _, graph in list(work.graphs()):
        for node in list(graph):
            _widen_attributes(node)
            for value in node.outputs:
                if _is_low(value):
                    _round(graph, value, names, node.op_type in EXACT, graph is work.graph)
        for value in list(graph.initializers.values()):
            _read_widened(graph, value, names)
        for value in graph.inputs:
            if graph is work.graph:
                _read_widened(graph, value, names)
            elif _is_low(value):
                _set_type(value, _FLOAT)
    work.touch()
    return work


def _is_low(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.value == _BFLOAT16


def _widen_attributes(node: ir.Node) -> None:
    """Change attributes that name bfloat16, or hold bfloat16 tensors, to float32."""
    import numpy as np
    import onnx_ir as ir

    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type is ir.AttributeType.INT and name in _TYPES and attribute.value == _BFLOAT16:
            node.attributes[name] = ir.AttrInt64(name, _FLOAT)
        elif attribute.type is ir.AttributeType.TENSOR and attribute.value.dtype.value == _BFLOAT16:
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(attribute.value.numpy().astype(np.float32)))


def _round(graph: ir.Graph, value: ir.Value, names: FreshNames, exact: bool, outermost: bool) -> None:
    """Make the result `value` float32, and redirect its readers to the rounded value.

    An output of the model stays bfloat16 and keeps its name.
    """
    leaves = outermost and any(output is value for output in graph.outputs)
    if exact and not leaves:
        _set_type(value, _FLOAT)
        return
    name = value.name
    narrow = _cast(graph, value, _BFLOAT16, names.fresh(f"{name}/narrow"))
    wide = _cast(graph, narrow, _FLOAT, names.fresh(f"{name}/rounded"))
    replace_uses_except(value, wide, (producer_of(narrow),))
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = narrow if outermost else wide
    _set_type(value, _FLOAT)
    if leaves:
        value.name, narrow.name = names.fresh(f"{name}/wide"), name


def _read_widened(graph: ir.Graph, value: ir.Value, names: FreshNames) -> None:
    """Cast a bfloat16 input or constant to float32 for its readers."""
    if not _is_low(value) or not value.uses():
        return
    wide = _cast(graph, value, _FLOAT, names.fresh(f"{value.name}/wide"))
    replace_uses_except(value, wide, (producer_of(wide),))


def _cast(graph: ir.Graph, value: ir.Value, to: int, name: str) -> ir.Value:
    import onnx_ir as ir

    node = ir.node("Cast", [value], {"to": to}, name=name)
    result = node.outputs[0]
    result.name, result.shape = name, value.shape
    _set_type(result, to)
    insert_after_value(graph, value, node)
    return result


def _set_type(value: ir.Value, dtype: int) -> None:
    import onnx_ir as ir

    value.type = ir.TensorType(ir.DataType(dtype))
