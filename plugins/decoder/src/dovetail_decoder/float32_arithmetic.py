"""bfloat16 for ONNX Runtime on CPUs, which has no kernels for it: weights stay, and arithmetic is in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_BFLOAT16, _FLOAT = 16, 1  # onnx.TensorProto.DataType
_TYPES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision", "stash_type"})
"""Attributes that hold an element type."""


def has_bfloat16(model: onnx.ModelProto) -> bool:
    """Return whether a model computes anything in bfloat16."""
    return any(
        any(tensor.data_type == _BFLOAT16 for tensor in graph.initializer)
        or any(
            attribute.name in _TYPES and attribute.i == _BFLOAT16 for node in graph.node for attribute in node.attribute
        )
        for graph in _graphs(model.graph)
    )


def compute_in_float32(model: onnx.ModelProto) -> None:
    """Compute everything that is bfloat16 in float32; weights are widened when they are read, and stay in their file.

    Inputs and outputs that are bfloat16 become float32, too, which is what generators and NumPy can hold.

    Args:
        model: The model, which is changed; its weights may be external, and are not read.
    """
    for graph in _graphs(model.graph):
        _widen_weights(graph)
        for value in (*graph.value_info, *graph.input, *graph.output):
            _widen_type(value)
        for node in graph.node:
            _widen_attributes(node)
    for function in model.functions:
        for value in function.value_info:
            _widen_type(value)
        for node in function.node:
            _widen_attributes(node)
            for attribute in node.attribute:
                for body in _bodies(attribute):
                    for graph in _graphs(body):
                        for inner in graph.node:
                            _widen_attributes(inner)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in _bodies(attribute):
                yield from _graphs(body)


def _bodies(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _widen_weights(graph: onnx.GraphProto) -> None:
    """Read weights in bfloat16 through one conversion each."""
    from onnx import helper

    casts = []
    for tensor in graph.initializer:
        if tensor.data_type == _BFLOAT16:
            stored = f"{tensor.name}/bfloat16"
            cast = helper.make_node("Cast", [stored], [tensor.name], name=f"{tensor.name}/widened")
            cast.attribute.append(helper.make_attribute("to", _FLOAT))
            casts.append(cast)
            tensor.name = stored
    if casts:
        nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
        del graph.node[:]
        graph.node.extend([*casts, *nodes])


def _widen_type(value: onnx.ValueInfoProto) -> None:
    kind = value.type.tensor_type
    if value.type.HasField("tensor_type") and kind.elem_type == _BFLOAT16:
        kind.elem_type = _FLOAT


def _widen_attributes(node: onnx.NodeProto) -> None:
    from onnx import numpy_helper

    for attribute in node.attribute:
        if attribute.name in _TYPES and attribute.i == _BFLOAT16:
            attribute.i = _FLOAT
        if attribute.HasField("t") and attribute.t.data_type == _BFLOAT16:
            widened = numpy_helper.to_array(attribute.t).astype("float32")
            attribute.t.CopyFrom(numpy_helper.from_array(widened, attribute.t.name))
