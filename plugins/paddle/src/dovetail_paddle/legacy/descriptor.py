"""The protobuf messages of legacy programs, declared here so that no file of Paddle is needed.

Only the fields that inference programs use are declared; protobuf skips the others.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_PACKAGE = "dovetail.paddle"

# message -> (field, number, type); `*` marks a repeated field, and a capital starts the name of a message.
_MESSAGES = {
    "Complex": "r:1:double i:2:double",
    "Scalar": "type:1:int32 b:2:bool i:3:int64 r:4:double c:5:Complex",
    "Port": "parameter:1:bytes arguments:2:bytes*",
    "Attribute": "name:1:bytes type:2:int32 i:3:int32 f:4:float s:5:bytes ints:6:int32* floats:7:float* "
    "strings:8:bytes* b:10:bool bools:11:bool* block_idx:12:int32 l:13:int64 blocks_idx:14:int32* longs:15:int64* "
    "float64s:16:double* var_name:17:bytes vars_name:18:bytes* float64:19:double scalar:20:Scalar scalars:21:Scalar*",
    "Operator": "inputs:1:Port* outputs:2:Port* type:3:bytes attrs:4:Attribute*",
    "Tensor": "data_type:1:int32 dims:2:int64*",
    "DenseTensor": "tensor:1:Tensor lod_level:2:int32",
    "Type": "type:1:int32 selected_rows:2:Tensor dense_tensor:3:DenseTensor tensor_array:4:DenseTensor",
    "Variable": "name:1:bytes type:2:Type persistable:3:bool is_parameter:5:bool",
    "Block": "idx:1:int32 parent_idx:2:int32 vars:3:Variable* ops:4:Operator*",
    "Version": "version:1:int64",
    "OperatorVersion": "version:1:int32",
    "NamedVersion": "op_name:1:bytes op_version:2:OperatorVersion",
    "VersionMap": "pair:1:NamedVersion*",
    "Program": "blocks:1:Block* version:4:Version op_version_map:5:VersionMap",
}

ATTRIBUTE_FIELDS = {
    0: "i", 1: "f", 2: "s", 3: "ints", 4: "floats", 5: "strings", 6: "b", 7: "bools", 8: "block_idx", 9: "l",
    10: "blocks_idx", 11: "longs", 12: "float64s", 13: "var_name", 14: "vars_name", 15: "float64", 16: "scalar",
    17: "scalars",
}  # fmt: skip
"""The field of an attribute that holds its value, by the attribute's type."""


@cache
def _classes() -> dict[str, type[Any]]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "double": field_type.TYPE_DOUBLE, "float": field_type.TYPE_FLOAT, "int64": field_type.TYPE_INT64,
        "int32": field_type.TYPE_INT32, "bool": field_type.TYPE_BOOL, "bytes": field_type.TYPE_BYTES,
    }  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(name="dovetail_paddle.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            field, number, kind = text.split(":")
            repeated, kind = kind.endswith("*"), kind.rstrip("*")
            added = message.field.add(name=field, number=int(number))
            added.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if kind in scalars:
                added.type = scalars[kind]
            else:
                added.type, added.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()  # of its own: Paddle may be loaded in the same process
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Program", "Tensor")
    }


def program_class() -> type[Any]:
    """Return the message class of a program."""
    return _classes()["Program"]


def tensor_class() -> type[Any]:
    """Return the message class of a tensor's type and extents, which stands before its data in a parameter file."""
    return _classes()["Tensor"]
