"""Check that all text is UTF-8, as names in Python, in plans and in most engines must be.

onnx's own messages do not check this and return other text as bytes. The same messages with proto3 syntax check it, in
C++, so the file is parsed once more with those.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    import onnx


def encoding_problem(proto: onnx.ModelProto) -> str:
    """Return the first text in `proto` that is not UTF-8; empty if there is none."""
    try:
        _strict().FromString(proto.SerializeToString())
    except DecodeError:
        return _first(proto)
    return ""


@cache
def _strict() -> type[Message]:
    """Return the message class of models with proto3 syntax."""
    import onnx

    file = descriptor_pb2.FileDescriptorProto()
    onnx.ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax = "proto3"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx.ModelProto"))


def _first(proto: Message) -> str:
    """Return the path of the first text that is not UTF-8."""
    stack = [("", proto)]
    while stack:
        path, message = stack.pop()
        inner = []
        for field, value in message.ListFields():
            values = list(value) if field.is_repeated else [value]
            if field.type == FieldDescriptor.TYPE_STRING:
                bad = next((text for text in values if isinstance(text, bytes)), None)
                if bad is not None:
                    where = f"{path}.{field.name}".lstrip(".")
                    return f"{where} is not UTF-8 ({bad[:40].decode(errors='replace')!r})"
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                inner += [(f"{path}.{field.name}", entry) for entry in values]
        stack += reversed(inner)
    return ""
