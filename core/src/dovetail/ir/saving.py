"""Saving a model: streamed, written beside its target and renamed, so that nothing is ever half there."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.files import named, replacing
from dovetail.garbage import without_collections
from dovetail.ir.skeleton import is_stub
from dovetail.ir.wire import join

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from dovetail.ir.model import Model

__all__ = ["data_files", "save_model", "tensor_chunks"]

Progress = Callable[[str, int, int], None]

EXTERNAL_ABOVE = 1 << 30  # bytes of weights
_ALIGNMENT = 4096  # bytes; a page, so that readers can map each weight
_CHUNK = 1 << 22  # bytes


def save_model(
    model: Model, path: str | Path, *, external: bool | None = None, progress: Progress | None = None
) -> None:
    """Write `model` to `path`.

    Placements are written into the nodes' `metadata_props`. Weights go into the file, or, above 1 GiB or when asked,
    into a data file beside it. That file is named after its content, so an older model keeps its own data until it is
    replaced; the data file that the replaced model used is removed then.

    Args:
        model: The model; it may be open from `path` itself.
        path: The file to write; its folder is made.
        external: Weights beside the model (True), inside (False), or by their size (None).
        progress: Called with ("save", weights written, weights in all) before each weight.

    Raises:
        DovetailError: The disk is full, the folder cannot be written to, or the model is too large for one file.
    """
    from dovetail.planning.annotations import mirror_annotations

    path = Path(path)
    with without_collections():
        mirror_annotations(model)
        skeleton = model.skeleton()
    size = sum(tensor.nbytes for tensor in skeleton.weights.values())
    if external is None:
        external = size > EXTERNAL_ABOVE
    elif not external and size > (1 << 31) - (1 << 24):
        raise DovetailError(f"{path}: {size >> 20} MiB of weights do not fit into one file", "save with external data")
    proto = skeleton.proto
    stubs = [tensor for tensor in proto.graph.initializer if is_stub(tensor)]
    tensors = [skeleton.weights[tensor.name] for tensor in stubs]
    old_data = data_files(path)
    tell = progress or _silent
    with named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if external and tensors:
            old_data.discard(_write_data(path, stubs, tensors, tell))
            with replacing(path) as file:
                file.write(proto.SerializeToString(deterministic=True))
        else:
            with replacing(path) as file:
                _write_whole(file, proto, stubs, tensors, tell)
    for stale in old_data:
        with contextlib.suppress(OSError):
            stale.unlink()


def tensor_chunks(tensor) -> Iterator[memoryview | bytes]:
    """The bytes of a tensor in pieces of a few MiB, little-endian; a tensor that has `chunks()` makes them itself."""
    import numpy as np
    import onnx_ir as ir

    if hasattr(tensor, "chunks"):
        yield from tensor.chunks()
    elif isinstance(tensor, ir.ExternalTensor):
        yield from _file_chunks(tensor)
    elif tensor.dtype.bitwidth < 8 or tensor.nbytes <= _CHUNK:
        yield tensor.tobytes()
    else:
        flat = tensor.numpy().reshape(-1)
        step = _CHUNK // flat.dtype.itemsize
        for start in range(0, flat.size, step):
            yield np.ascontiguousarray(flat[start : start + step]).view(np.uint8).data


def _file_chunks(tensor: ir.ExternalTensor) -> Iterator[bytes]:
    """Read instead of map: the file holds the bytes as they are wanted, and nothing stays in memory."""
    left = tensor.nbytes
    with open(tensor.path, "rb") as file:
        file.seek(tensor.offset or 0)
        while left and (chunk := file.read(min(left, _CHUNK))):
            yield chunk
            left -= len(chunk)


def _silent(what: str, done: int, total: int) -> None:
    """No progress is wanted."""


def _write_whole(file: IO[bytes], proto: onnx.ModelProto, stubs: Sequence, tensors: Sequence, tell: Progress) -> None:
    import onnx

    outer, graph = onnx.ModelProto(), onnx.GraphProto()
    headers = []
    for proto_tensor, tensor in zip(stubs, tensors, strict=True):
        header = onnx.TensorProto(name=proto_tensor.name, dims=proto_tensor.dims, data_type=proto_tensor.data_type)
        headers.append((header.SerializeToString(), tensor.nbytes))
    graph.CopyFrom(proto.graph)
    _drop_stubs(graph)
    outer.CopyFrom(proto)
    outer.ClearField("graph")
    pieces = join(outer.SerializeToString(deterministic=True), graph.SerializeToString(deterministic=True), headers)
    for piece in pieces:
        if isinstance(piece, bytes):
            file.write(piece)
        else:
            tell("save", piece, len(tensors))
            for chunk in tensor_chunks(tensors[piece]):
                file.write(chunk)


def _drop_stubs(graph: onnx.GraphProto) -> None:
    inline = [tensor for tensor in graph.initializer if not is_stub(tensor)]
    del graph.initializer[:]
    graph.initializer.extend(inline)


def _write_data(path: Path, stubs: Sequence, tensors: Sequence, tell: Progress) -> Path:
    """Write the weights, point the stubs at them, and return the data file; its name holds a digest of its content."""
    partial = path.with_name(f".{path.name}.data.partial")
    digest = hashlib.sha256()
    places = []
    try:
        with partial.open("wb") as file:
            position = 0
            for done, tensor in enumerate(tensors):
                tell("save", done, len(tensors))
                padding = -position % _ALIGNMENT
                file.write(bytes(padding))
                places.append((position + padding, tensor.nbytes))
                position += padding + tensor.nbytes
                for chunk in tensor_chunks(tensor):
                    file.write(chunk)
                    digest.update(chunk)
        target = path.with_name(f"{path.stem}-{digest.hexdigest()[:12]}.data")
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    for proto, (offset, length) in zip(stubs, places, strict=True):
        del proto.external_data[:]
        for key, value in (("location", target.name), ("offset", offset), ("length", length)):
            entry = proto.external_data.add()
            entry.key, entry.value = key, str(value)
    return target


def data_files(path: Path) -> set[Path]:
    """The data files that the model at `path` names, if `save_model` wrote them; nobody else's file is among them."""
    named = re.compile(re.escape(path.stem) + r"-[0-9a-f]{12}\.data")
    beside = [file for file in path.parent.glob("*.data") if named.fullmatch(file.name)] if path.is_file() else []
    if not beside or not path.stat().st_size:
        return set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {file for file in beside if content.find(file.name.encode()) >= 0}
