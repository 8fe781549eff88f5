"""Preserve map types, which onnx-ir lacks: kept as metadata of outputs and restored on serialisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


_TYPE = "dovetail.map_type"


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """Return the onnx-ir model of `proto`; outputs of map types are untyped there, with their type in `meta`."""
    import onnx_ir as ir

    held = [(index, output) for index, output in enumerate(proto.graph.output) if _holds_map(output.type)]
    infos = [info for info in proto.graph.value_info if _holds_map(info.type)]
    if not held and not infos:
        return ir.from_proto(proto)
    plain = type(proto)()
    plain.CopyFrom(proto)
    for index, _ in held:
        plain.graph.output[index].ClearField("type")
    for info in [info for info in plain.graph.value_info if _holds_map(info.type)]:
        plain.graph.value_info.remove(info)
    model = ir.from_proto(plain)
    for index, output in held:
        model.graph.outputs[index].meta[_TYPE] = output.type
    return model


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the proto of `model`, with map types restored."""
    import onnx_ir as ir

    proto = ir.to_proto(model)
    for value, output in zip(model.graph.outputs, proto.graph.output):
        if value is not None and _TYPE in value.meta and not output.HasField("type"):
            output.type.CopyFrom(value.meta[_TYPE])
    return proto


def _holds_map(type_: onnx.TypeProto) -> bool:
    kind = type_.WhichOneof("value")
    while kind in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
        kind = type_.WhichOneof("value")
    return kind == "map_type"
