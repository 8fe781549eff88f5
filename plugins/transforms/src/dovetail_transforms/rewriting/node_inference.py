"""Type inference for the outputs of single nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


# Maximum elements of constants that inference may need: axes and shapes, and scales.
_MOST_INTEGERS, _MOST_FLOATS = 1024, 16


def infer_outputs(node: ir.Node, version: int) -> None:
    """Infer missing types and shapes of the outputs of one node with onnx.

    Outputs stay untyped if an input is untyped, or if onnx has no inference for the operator.

    Args:
        node: A node without bodies.
        version: The version of its domain that it is written in.
    """
    import onnx_ir as ir

    if all(value.type is not None for value in node.outputs):
        return
    for value, found in _inferred(node, version):
        if value.type is None:
            value.type = ir.serde.deserialize_type_proto_for_type(found)
            if value.shape is None:
                value.shape = ir.serde.deserialize_type_proto_for_shape(found)


def refine_shapes(node: ir.Node, version: int) -> bool:
    """Infer open extents of outputs from the present shapes of the inputs, with onnx on this node only.

    Known extents stay unchanged.

    Args:
        node: A node without bodies.
        version: The version of its domain that it is written in.

    Returns:
        Whether any extent became known.
    """
    import onnx_ir as ir

    changed = False
    for value, found in _inferred(node, version):
        shape = ir.serde.deserialize_type_proto_for_shape(found)
        if shape is None or value.shape is not None and len(shape) != len(value.shape):
            continue
        before = list(value.shape) if value.shape is not None else [None] * len(shape)
        after = [new if isinstance(new, int) and not isinstance(old, int) else old for old, new in zip(before, shape)]
        if value.shape is None or any(one is not other for one, other in zip(before, after)):
            value.shape = ir.Shape([new if old is None else old for old, new in zip(after, shape)])
            changed = True
    return changed


def inferred_types(
    node: ir.Node, version: int, type_of: Callable[[ir.Value], onnx.TypeProto | None]
) -> list[tuple[ir.Value, onnx.TypeProto]]:
    """Return the output types that onnx infers; empty if an input has no type, or onnx does not know the operator.

    Args:
        node: A node without bodies.
        version: The version of its domain that it is written in.
        type_of: Returns the type of an input.

    Raises:
        onnx.shape_inference.InferenceError: The types of the inputs contradict the operator.
    """
    import onnx
    import onnx_ir as ir

    read = [value for value in node.inputs if value is not None]
    # Values may have no names yet, so use positions.
    names = {id(value): f"in{index}" for index, value in enumerate(node.inputs) if value is not None}
    types = {names[id(value)]: found for value in read if (found := type_of(value)) is not None}
    if len(types) < len({id(value) for value in read}):
        return []
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend("" if value is None else names[id(value)] for value in node.inputs)
    proto.output.extend(f"out{index}" for index in range(len(node.outputs)))
    proto.attribute.extend(ir.serde.serialize_attribute(attribute) for attribute in node.attributes.values())
    data = {
        names[id(value)]: ir.serde.serialize_tensor(value.const_value)
        for value in read
        if value.const_value is not None and _is_small(value.const_value) and not value.is_graph_input()
    }
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return []
    imports = [onnx.helper.make_opsetid(node.domain, version)]
    inferred = onnx.shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=imports)
    results = ((value, inferred.get(f"out{index}")) for index, value in enumerate(node.outputs))
    return [(value, found) for value, found in results if found is not None]


def _inferred(node: ir.Node, version: int) -> list[tuple[ir.Value, onnx.TypeProto]]:
    """Return the output types that onnx infers; empty if an input has no type."""
    try:
        return inferred_types(node, version, type_of)
    except Exception:  # a C++ exception of any kind: no information
        return []


def _is_small(tensor: ir.TensorProtocol) -> bool:
    return tensor.size <= (_MOST_INTEGERS if tensor.dtype.is_integer() else _MOST_FLOATS)


def type_of(value: ir.Value) -> onnx.TypeProto | None:
    """Return type and shape of a value as onnx has them; None if it has no type."""
    import onnx_ir as ir

    if value.type is None:
        return None
    found = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(found, value.shape)
    return found
