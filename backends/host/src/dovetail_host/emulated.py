"""Emulate bfloat16 in float32, with every result rounded to bfloat16.

ONNX Runtime's CPU provider has few kernels for bfloat16. Computing in float32 and rounding the result is equivalent to
a bfloat16 kernel with a float32 accumulator. Each result gets two casts, to bfloat16 and back; ONNX Runtime keeps such
a pair, because it is not an identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.editing import insert_after_value, replace_uses_except
from dovetail.ir.fresh_names import FreshNames
from dovetail.ir.required import producer_of

from dovetail_host.rounded import EXACT

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


_BFLOAT16, _FLOAT = 16, 1  # onnx.TensorProto.DataType
# Attributes that hold an element type: that of a result, or the one to compute in.
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
