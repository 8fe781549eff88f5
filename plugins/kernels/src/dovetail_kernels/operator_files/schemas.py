"""ONNX schemas of operators from files, which onnx's checker and shape inference use like its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dovetail_kernels.operator_files.entries import OperatorArgument, OperatorEntry

if TYPE_CHECKING:
    import onnx
    from onnx.defs import OpSchema


_INTEGERS = ("bool", "int", "int64_t", "IntArray", "Scalar(bool)", "Scalar(int)", "Scalar(int64_t)")
_TEXTS = ("str", "Place", "DataLayout", "DataType")


def schema_of(entry: OperatorEntry, domain: str, version: int) -> OpSchema:
    """Build the schema of one entry.

    Inputs may have any type, independently of each other: an operator file describes outputs, not the valid input
    types.
    """
    import onnx

    schema = onnx.defs.OpSchema
    every = tensor_types()
    count = len(entry.inputs) + len(entry.outputs)
    names = [f"T{index}" for index in range(count)]
    ports = [*((one.name, one.is_list) for one in entry.inputs), *((one.name, one.is_list) for one in entry.outputs)]
    formal = [
        schema.FormalParameter(
            name, type_, param_option=_option(schema, entry, name, is_list), is_homogeneous=not is_list
        )
        for (name, is_list), type_ in zip(ports, names, strict=True)
    ]
    return schema(
        entry.name,
        domain,
        version,
        f"Defined in {entry.where}.",
        inputs=formal[: len(entry.inputs)],
        outputs=formal[len(entry.inputs) :],
        type_constraints=[(name, every, "any tensor") for name in names],
        attributes=[_attribute(schema, arg) for arg in entry.attributes],
    )


def attribute_type(arg: OperatorArgument) -> str:
    """Return the ONNX type of an attribute: `INT`, `FLOATS`, `STRING`, ..."""
    kind = arg.type.removesuffix("[]")
    if kind in _TEXTS:
        found = "STRING"
    elif kind in _INTEGERS:
        found = "INT"
    else:
        found = "FLOAT"
    return f"{found}S" if arg.is_list or arg.type == "IntArray" else found


def attribute_of(arg: OperatorArgument, value: object) -> onnx.AttributeProto:
    """Build an attribute with a value."""
    import onnx

    number = onnx.AttributeProto.AttributeType.Value(attribute_type(arg))
    if isinstance(value, (list, tuple)):
        value = [_converted(arg, one) for one in value]
    else:
        value = _converted(arg, value)
    return onnx.helper.make_attribute(arg.name, value, attr_type=number)


def _converted(arg: OperatorArgument, value: object) -> object:
    kind = attribute_type(arg)
    if kind.startswith("INT"):
        return int(cast("int", value))
    return float(cast("float", value)) if kind.startswith("FLOAT") else str(value)


def _attribute(schema: type[OpSchema], arg: OperatorArgument) -> OpSchema.Attribute:
    if arg.has_default:
        return schema.Attribute(arg.name, attribute_of(arg, arg.default))
    return schema.Attribute(arg.name, getattr(schema.AttrType, attribute_type(arg)), required=True)


def _option(schema: type[OpSchema], entry: OperatorEntry, name: str, is_list: bool) -> OpSchema.FormalParameterOption:
    option = schema.FormalParameterOption
    return option.Variadic if is_list else option.Optional if name in entry.optional else option.Single


def tensor_types() -> Sequence[str]:
    """Return the tensor types in ONNX's schema of Identity, which accepts every type."""
    import onnx

    schema = onnx.defs.get_schema("Identity")
    return sorted(
        text for kind in schema.type_constraints for text in kind.allowed_type_strs if text.startswith("tensor")
    )
