"""Opening of models: the graph is read, the weights are memory-mapped."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.ir import Model, gc_paused
from dovetail.plugin.loading import check_regular

from dovetail_onnx.dialect import OnnxDialect
from dovetail_onnx.external import TensorLoader
from dovetail_onnx.skeleton import Skeleton, stays_inline, stub
from dovetail_onnx.source import check_source
from dovetail_onnx.source.graphs import named_bodies_of
from dovetail_onnx.source.tensors import fill_with_zeros
from dovetail_onnx.text import deepest_bracket, fill_declared
from dovetail_onnx.type_gaps import densify_initializers
from dovetail_onnx.wire import BRACKET_DEPTH, RawData, split

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from google.protobuf.message import Message


_Message = TypeVar("_Message", bound="Message")
_TEXT_ENDINGS = {".onnxtxt", ".txt"}
_LARGEST_TEXT = 256 << 20  # characters of standard input, which may never end
_PLACEHOLDERS = {"?", "None", "-1"}
_LEAVE_ON_DISK = 1024  # bytes; smaller initializers are read with the graph


def open_model(path: str | Path, *, declared: bool = False) -> Model:
    """Open an ONNX model.

    Weights are mapped, not loaded, whether they are in the model file or in external data files. A file that ends in
    `.onnxtxt` or `.txt`, and `-` for standard input, is read as ONNX text (see `open_text`). The model and all of its
    tensors are checked (see `dovetail_onnx.source`).

    Args:
        path: The file.
        declared: Read tensors without data as zeros; crash reproducers are written that way.

    Raises:
        DovetailError: The file is missing, not a model, truncated or invalid, or its external data is missing,
            truncated or outside the model's folder.
    """
    if str(path) == "-":
        text = sys.stdin.read(_LARGEST_TEXT + 1)
        if len(text) > _LARGEST_TEXT:
            raise DovetailError(f"standard input is longer than {_LARGEST_TEXT >> 20} Mi characters", "name a file")
        return open_text(text, "standard input")
    path = Path(path)
    check_regular(path)
    if path.suffix in _TEXT_ENDINGS:
        with _named(path):
            text = seen(path).read_text(encoding="utf-8", errors="replace")
        return open_text(text, str(path), path)
    with gc_paused():
        return Model(lazy=_read(path, declared), path=path, checked=True, dialect=OnnxDialect())


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Convert operating system errors to errors that name `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise DovetailError(f"{path} cannot be read: {reason}", "check the path of the model") from error


def open_text(text: str, name: str, path: Path | None = None) -> Model:
    """Read a model from ONNX text (https://onnx.ai/onnx/repo-docs/Syntax.html).

    Lines that start with `//` are comments. Tensors without data, as `print_model` writes large ones, are zeros.

    Raises:
        DovetailError: The text has a syntax error (with the parser's message), or the model is invalid.
    """
    import onnx

    body = "\n".join("" if line.lstrip().startswith("//") else line for line in text.split("\n"))
    if deepest_bracket(body) > BRACKET_DEPTH:
        raise DovetailError(
            f"{name} is not ONNX text: its brackets are nested deeper than {BRACKET_DEPTH} levels",
            "see onnx's Syntax page",
        )
    try:
        proto = onnx.parser.parse_model(body)
    except Exception as error:  # ParseError, and other exceptions of its C++ code
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise DovetailError(f"{name} is not ONNX text: {reason.strip()}", "see onnx's Syntax page") from None
    fill_declared(proto, name)
    return open_proto(proto, name, path)


def open_proto(proto: onnx.ModelProto, name: str = "the model", path: Path | None = None) -> Model:
    """Create a model from a proto and take ownership of it: pass a copy to keep the proto unchanged.

    Args:
        proto: The model, with weights inside or in external data.
        name: Its name in messages.
        path: The file that it came from; external data is resolved relative to it, and refused without it.

    Raises:
        DovetailError: The model is invalid (see `dovetail_onnx.source`).
    """
    with gc_paused():
        skeleton = _checked(proto, (), TensorLoader(name, path))
        return Model(lazy=skeleton, path=path, checked=True, dialect=OnnxDialect())


def _read(path: Path, declared: bool) -> Skeleton:
    import onnx

    with _named(path), seen(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise DovetailError(f"{path} is empty", "export or copy the model again")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        rest, found = split(memoryview(mapped), _LEAVE_ON_DISK)
    except ValueError as error:
        raise _unreadable(str(path), mapped[:_HEAD], error) from None
    proto = parse_proto(rest, str(path))
    loader = TensorLoader(str(path), path)
    on_disk: list[tuple[onnx.TensorProto, ir.TensorProtocol]] = []
    for header, data in found:
        tensor = _parsed(onnx.TensorProto, header, str(path))
        loader.check(tensor, f"initializer '{tensor.name}'", data.length)
        on_disk.append((tensor, _mapped(tensor, mapped, data)))
    return _checked(proto, on_disk, loader, declared)


def parse_proto(content: bytes, name: str) -> onnx.ModelProto:
    """Parse a `ModelProto`.

    Raises:
        DovetailError: The bytes are not a model, truncated, or nested deeper than protobuf reads.
    """
    import onnx

    return _parsed(onnx.ModelProto, content, name)


def _parsed(kind: type[_Message], content: bytes, name: str) -> _Message:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(content)
    except DecodeError as error:
        if "MaxDepth" in str(error):
            problem = f"{name} is nested deeper than protobuf reads (100 messages)"
            raise DovetailError(problem, "this file is damaged or made to do harm") from None
        raise _unreadable(name, content[:_HEAD], error) from None


_HEAD, _ORT = 8, b"ORTM"
"""Bytes at the beginning that tell formats apart, and the identifier of ONNX Runtime's own one, behind an offset."""


def _unreadable(name: str, head: bytes, error: Exception) -> DovetailError:
    if head[4:] == _ORT:
        return DovetailError(
            f"{name} is in ONNX Runtime's own format (ORT), which its versions write for themselves, and not in ONNX",
            "give the ONNX file that it was converted from",
        )
    return DovetailError(
        f"{name} is not an ONNX model, or it is cut short ({error})",
        "export or copy the model again; its size should be as where it was made",
    )


def _checked(
    proto: onnx.ModelProto,
    on_disk: Sequence[tuple[onnx.TensorProto, ir.TensorProtocol]],
    loader: TensorLoader,
    declared: bool = False,
) -> Skeleton:
    """Check all tensors, take large initializers out of the proto, and check the rest of the model.

    Args:
        proto: The model without the initializers in `on_disk`.
        on_disk: Initializers whose data was left in the file, with tensors mapped over it.
        loader: The tensor loader of this file.
        declared: Read tensors without data as zeros.
    """
    if not proto.HasField("graph") or not proto.opset_import and not proto.graph.node:
        raise DovetailError(f"{loader.name} is not an ONNX model: it holds no graph", "name an .onnx file")
    weights = fill_with_zeros(proto, loader.name) if declared else {}
    densify_initializers(proto.graph, loader)
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            stub(tensor)
            continue
        what = f"initializer '{tensor.name}'"
        external = loader.check(tensor, what)
        weight = external if external is not None else _large(tensor)
        if weight is not None and not stays_inline(weight):
            weights[tensor.name] = weight
            stub(tensor)
        elif external is not None:
            loader.inline_external(tensor, external, what)
    for tensor, weight in on_disk:
        weights[tensor.name] = weight
        stub(tensor)
        proto.graph.initializer.append(tensor)
    check_source(proto, loader)
    _forget_placeholders(proto.graph)
    return Skeleton(proto, weights, loader.files)


def _forget_placeholders(graph: onnx.GraphProto) -> None:
    """Leave extents open that only seem to have a name.

    paddle2onnx wrote `?` for each that it does not know, and onnxmltools `None`: as names they would say that height
    and width of a picture are equal.
    """
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_param in _PLACEHOLDERS:
                dim.ClearField("dim_param")
    for node in graph.node:
        for _, body in named_bodies_of(node):
            _forget_placeholders(body)


def _large(tensor: onnx.TensorProto) -> ir.TensorProtocol | None:
    """Return the content of an initializer that is too large for a skeleton, detached from its proto; else None."""
    import onnx
    import onnx_ir as ir

    if tensor.ByteSize() < _LEAVE_ON_DISK or tensor.data_type == onnx.TensorProto.STRING:
        return None
    apart = ir.serde.TensorProtoTensor(onnx.TensorProto.FromString(tensor.SerializeToString()))
    return apart if apart.dtype.bitwidth < 8 else ir.Tensor(apart.numpy(), apart.dtype, name=tensor.name)


def _mapped(proto: onnx.TensorProto, mapped: mmap.mmap, data: RawData) -> ir.TensorProtocol:
    """Return a tensor over the mapped bytes of the file, without a copy."""
    import numpy as np
    import onnx_ir as ir

    from dovetail_onnx.external import MappedTensor

    dtype = ir.DataType(proto.data_type)
    if dtype.bitwidth < 8:
        packed = np.frombuffer(mapped, np.uint8, data.length, data.offset)
        return ir.PackedTensor(packed, dtype, shape=ir.Shape(proto.dims), name=proto.name)
    return MappedTensor(mapped, dtype, proto.dims, data.offset, proto.name)
