"""Result types of an operator, by its decomposition: ONNX Runtime reports them only if it has a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames

from dovetail_transforms.decompositions.decomposing import LOWEST, is_known
from dovetail_transforms.decompositions.formula import Formula, operator_of
from dovetail_transforms.decompositions.rules.all_rules import RULES
from dovetail_transforms.rewriting import NotRewritten

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


def infer_by_decomposition(
    proto: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], data: Mapping[str, onnx.TensorProto], opset: int
) -> list[onnx.TypeProto | None]:
    """Return the types of a node's outputs, None for each that is unknown.

    Args:
        proto: The node.
        types: The types of its inputs, by name.
        data: Those inputs that are small constants.
        opset: The version of the default domain.
    """
    import onnx_ir as ir

    values: dict[str, ir.Value] = {}
    for name in dict.fromkeys(name for name in proto.input if name):
        held = ir.serde.deserialize_tensor(data[name]) if name in data else None
        shape = ir.serde.deserialize_type_proto_for_shape(types[name])
        kind = ir.serde.deserialize_type_proto_for_type(types[name])
        values[name] = ir.Value(name=name, type=kind, shape=shape, const_value=held)
    attributes = [ir.from_proto(attribute) for attribute in proto.attribute]
    outputs = [ir.Value(name=name) for name in proto.output]
    inputs = [values.get(name) for name in proto.input]
    node = ir.Node(proto.domain, proto.op_type, inputs, attributes, outputs=outputs, name=proto.name)
    read = [value for value in outputs if value.name]
    ir.Graph(
        [value for value in values.values() if value.const_value is None],
        read,
        nodes=[node],
        initializers=[value for value in values.values() if value.const_value is not None],
        opset_imports={"": opset},
    )
    if not is_known(node) or opset < LOWEST:
        return [None] * len(outputs)
    try:
        found = Formula(node, FreshNames(proto.input), opset).results(RULES[operator_of(node)])
    except NotRewritten:
        return [None] * len(outputs)
    return [_type_of(value) for value in (*found, *[None] * len(outputs))[: len(outputs)]]


def _type_of(value: ir.Value | None) -> onnx.TypeProto | None:
    import onnx_ir as ir

    if value is None or value.type is None:
        return None
    found = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(found, value.shape)
    return found
