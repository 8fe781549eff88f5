"""Opening a model: the graph is read, the weights stay where they are."""

from __future__ import annotations

import math
import mmap
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.garbage import without_collections
from dovetail.ir.external import resolve_external_data
from dovetail.ir.model import Model
from dovetail.ir.skeleton import Skeleton, stub
from dovetail.ir.wire import RawData, split

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["open_model", "open_text"]

_TEXT_ENDINGS = {".onnxtxt", ".txt"}
_LEAVE_ON_DISK = 1024  # bytes; smaller initializers are read with the graph


def open_model(path: str | Path) -> Model:
    """Read an ONNX model.

    Weights are mapped, not loaded, whether they lie in the model file or beside it. A file that ends in `.onnxtxt` or
    `.txt`, and `-` for standard input, holds ONNX text (see `open_text`).

    Raises:
        DovetailError: The file is missing, is not a model, is cut short, or its external data is missing, too short
            or outside the model's folder.
    """
    if str(path) == "-":
        return open_text(sys.stdin.read(), "standard input")
    path = Path(path)
    if path.is_dir():
        raise DovetailError(f"{path} is a folder, not a model", "name the .onnx file in it")
    if not path.exists():
        raise DovetailError(f"{path} does not exist", "check the path of the model")
    if path.suffix in _TEXT_ENDINGS:
        return open_text(path.read_text(encoding="utf-8", errors="replace"), str(path), path)
    with without_collections():
        return Model(skeleton=_read(path), path=path)


def open_text(text: str, name: str, path: Path | None = None) -> Model:
    """Read a model from ONNX text (https://onnx.ai/onnx/repo-docs/Syntax.html).

    Lines that start with `//` are comments. An initializer that is declared without data, as `print_model` writes the
    large ones, holds zeros.

    Raises:
        DovetailError: The text has a mistake; the message holds the parser's.
    """
    import onnx

    body = "\n".join("" if line.lstrip().startswith("//") else line for line in text.split("\n"))
    try:
        proto = onnx.parser.parse_model(body)
    except onnx.parser.ParseError as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise DovetailError(f"{name} is not ONNX text: {reason.strip()}", "see onnx's Syntax page") from None
    _fill_declared(proto.graph)
    return Model(skeleton=Skeleton(proto, {}), path=path)


def _fill_declared(graph: onnx.GraphProto) -> None:
    """Give every declared value that nothing defines an initializer of zeros, unless its extents are open."""
    import onnx
    import onnx_ir as ir

    defined = {name for node in graph.node for name in node.output}
    defined.update(value.name for value in (*graph.input, *graph.initializer))
    for value in [value for value in graph.value_info if value.name not in defined]:
        kind = value.type.tensor_type
        extents = [dim.dim_value for dim in kind.shape.dim]
        if all(dim.HasField("dim_value") for dim in kind.shape.dim) and kind.elem_type != onnx.TensorProto.STRING:
            tensor = graph.initializer.add(name=value.name, data_type=kind.elem_type, dims=extents)
            bits = ir.DataType(kind.elem_type).bitwidth
            tensor.raw_data = bytes((math.prod(extents) * bits + 7) // 8)
            graph.value_info.remove(value)


def _read(path: Path) -> Skeleton:
    import onnx
    from google.protobuf.message import DecodeError

    size = path.stat().st_size
    if size == 0:
        raise DovetailError(f"{path} is empty", "export or copy the model again")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    proto = onnx.ModelProto()
    try:
        rest, found = split(memoryview(mapped), _LEAVE_ON_DISK)
        proto.ParseFromString(rest)
    except (ValueError, DecodeError) as error:
        raise DovetailError(
            f"{path} is not an ONNX model, or it is cut short ({error})",
            "export or copy the model again; its size should be as where it was made",
        ) from None
    if not proto.HasField("graph") or not proto.opset_import and not proto.graph.node:
        raise DovetailError(f"{path} is not an ONNX model: it holds no graph", "name an .onnx file")
    weights: dict[str, ir.TensorProtocol] = {}
    for header, data in found:
        tensor = onnx.TensorProto.FromString(header)
        weights[tensor.name] = _mapped(tensor, mapped, data, path)
        stub(tensor)
        proto.graph.initializer.append(tensor)
    if b"location" in rest:  # the key that every reference to external data holds
        weights.update(resolve_external_data(proto, path))
    return Skeleton(proto, weights)


def _mapped(proto: onnx.TensorProto, mapped: mmap.mmap, data: RawData, path: Path) -> ir.TensorProtocol:
    """A tensor over the file's own bytes: no copy, and one mapping for all of them."""
    import numpy as np
    import onnx_ir as ir

    dtype, shape = ir.DataType(proto.data_type), ir.Shape(proto.dims)
    if dtype.bitwidth < 8:
        packed = np.frombuffer(mapped, np.uint8, data.length, data.offset)
        return ir.PackedTensor(packed, dtype, shape=shape, name=proto.name)
    try:
        array = np.frombuffer(mapped, dtype.numpy(), data.length * 8 // dtype.bitwidth, data.offset)
        return ir.Tensor(array.reshape(tuple(proto.dims)), dtype, shape=shape, name=proto.name)
    except ValueError:
        raise DovetailError(
            f"{path}: initializer '{proto.name}' has {data.length} bytes, which is not {list(proto.dims)} {dtype.name}",
            "export or copy the model again",
        ) from None
