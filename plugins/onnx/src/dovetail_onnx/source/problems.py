"""Collected problems of a source model, and checks of its text encoding and versions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.text import printable
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

if TYPE_CHECKING:
    import onnx


_KEPT = 50


class Problems:
    """Problems found so far, in file order.

    Args:
        name: Name of the model in messages: its path, or `the model`.
    """

    def __init__(self, name: str):
        self._name = name
        self._texts: list[str] = []
        self._hints: list[str] = []
        self.count = 0

    def add(self, text: str, hint: str = "") -> None:
        """Add a problem, with an optional hint."""
        self.count += 1
        if self.count <= _KEPT:
            self._texts.append(text)
            self._hints.append(hint)

    def raise_first(self) -> None:
        """Raise the first problem, with the total count; do nothing without problems."""
        if self.count:
            more = f" (and {self.count - 1} more problem{'s' * (self.count > 2)})" if self.count > 1 else ""
            hint = self._hints[0] or "export the model again, or mend it in the tool that made it"
            raise DovetailError(f"{self._name}: {printable(self._texts[0])}{more}", hint)


def encoding_problem(proto: onnx.ModelProto) -> str:
    """Return the first text in `proto` that is not UTF-8; empty if there is none."""
    try:
        _strict().FromString(proto.SerializeToString())
    except DecodeError:
        return _first(proto)
    return ""


@cache
def _strict() -> type[Message]:
    """Return the message class of models with proto3 syntax, which has only texts and what holds them."""
    import onnx

    file = descriptor_pb2.FileDescriptorProto()
    onnx.ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax = "proto3"
    texts = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    for message in file.message_type:
        for kind in (message, *message.nested_type):
            kept = [entry for entry in kind.field if entry.type in texts]
            del kind.field[:]
            kind.field.extend(kept)
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


def check_versions(proto: onnx.ModelProto, problems: Problems) -> None:
    """Check the IR version, and the imports of the model and of every function."""
    import onnx

    if proto.ir_version < 1:
        problems.add("the file states no IR version")
    elif proto.ir_version > onnx.IR_VERSION:
        problems.add(
            f"IR version {proto.ir_version} is newer than onnx {onnx.__version__} knows ({onnx.IR_VERSION})",
            "upgrade the package onnx, or export for an older version",
        )
    check_imports(proto.opset_import, "the model", problems)
    for function in proto.functions:
        check_imports(function.opset_import, f"function '{function.name}'", problems)


def check_imports(imports: Iterable[onnx.OperatorSetIdProto], what: str, problems: Problems) -> None:
    """Check that each domain is imported once, in a version that the installed onnx knows."""
    import onnx

    newest = onnx.defs.C.schema_version_map()
    seen: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        label = f"opset {entry.version}" + (f" of domain '{domain}'" if domain else "")
        if not 1 <= entry.version < 1 << 31:
            problems.add(f"{what} imports {label}, which is not a valid version")
        elif domain in newest and entry.version > newest[domain][1]:
            problems.add(
                f"{what} imports {label}; onnx {onnx.__version__} knows versions up to {newest[domain][1]}",
                "upgrade the package onnx, or export for an older opset",
            )
        if seen.setdefault(domain, entry.version) != entry.version:
            problems.add(f"{what} imports domain '{domain}' twice, in versions {seen[domain]} and {entry.version}")


def imports_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return the version of each imported domain; the default domain is `""`."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in imports}
