"""Writing of ONNX files: streamed to a temporary file and renamed, so that no partial file is ever visible."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import gc_paused

from dovetail_onnx.annotations import mirror_annotations
from dovetail_onnx.array_workers import workers
from dovetail_onnx.files.reading import file_sha256
from dovetail_onnx.files.resumable import DataFile, data_file
from dovetail_onnx.files.writing import named, replacing_file
from dovetail_onnx.skeleton import is_stub, skeleton_of
from dovetail_onnx.wire import join, tag, varint

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail.ir import Model


CONTENT_DIGEST = "dovetail.content"
"""Key of the content digest in the model's metadata."""

_METADATA_PROPS = 14  # field number in ModelProto
_DIGITS = 64


def _prefix() -> bytes:
    key = CONTENT_DIGEST.encode()
    entry = tag(1) + varint(len(key)) + key + tag(2) + varint(_DIGITS)
    return tag(_METADATA_PROPS) + varint(len(entry) + _DIGITS) + entry


_PREFIX = _prefix()
CONTENT_DIGEST_SIZE = len(_PREFIX) + _DIGITS
"""Bytes of a content digest at the end of a file."""


def make_content_digest(content: bytes, data: Iterable[bytes]) -> bytes:
    """Return the bytes of a content digest.

    Args:
        content: SHA-256 of the file's bytes before the content digest.
        data: SHA-256 of every data file, in the order of their names.
    """
    return _PREFIX + hashlib.sha256(b"".join((content, *data))).hexdigest().encode()


def read_content_digest(path: Path) -> str:
    """Return the hexadecimal digest at the end of the file, or empty if it has none; reads nothing else."""
    with path.open("rb") as file:
        if file.seek(0, 2) < CONTENT_DIGEST_SIZE:
            return ""
        file.seek(-CONTENT_DIGEST_SIZE, 2)
        found = file.read()
    return found[len(_PREFIX) :].decode("ascii", "replace") if found.startswith(_PREFIX) else ""


def content_digest_holds(path: Path, data: Iterable[Path]) -> bool:
    """Whether the model at `path` and its data files are unchanged since it was sealed; hashes all of them."""
    content_digest = read_content_digest(path)
    if not content_digest:
        return False
    digest, left = hashlib.sha256(), path.stat().st_size - CONTENT_DIGEST_SIZE
    with path.open("rb") as file:
        while left and (chunk := file.read(min(left, 1 << 20))):
            digest.update(chunk)
            left -= len(chunk)
    files = [bytes.fromhex(file_sha256(file)) for file in sorted(data)]
    return make_content_digest(digest.digest(), files).endswith(content_digest.encode())


Progress = Callable[[str, int, int], None]

EXTERNAL_ABOVE = 1 << 30  # bytes of weights
_ALIGNMENT = 4096  # bytes; a page, so that readers can map each weight
_CHUNK = 1 << 22  # bytes
_REFERENCE, _DIGEST = 64, 112  # bytes at most of a weight's place in a data file, and of a digest of the content


class SavedFile(NamedTuple):
    """A written file, with its size in bytes and the SHA-256 of its content."""

    path: Path
    size: int
    sha256: str


def save_model(
    model: Model,
    path: str | Path,
    *,
    external: bool | None = None,
    progress: Progress | None = None,
    content_digest: bool = False,
) -> list[SavedFile]:
    """Write `model` to `path`.

    Placements are written into the nodes' `metadata_props`. Weights are stored in the file, or, above 1 GiB or on
    request, in a data file next to it. The data file is named by its content, so an older model keeps its data until it
    is replaced; its data file is then removed, unless another model in the folder refers to it.

    Args:
        model: The model; may be open from `path` itself.
        path: The file to write; its folder is created.
        external: Store weights outside the file (True), inside (False), or by their size (None).
        progress: Called with ("save", weights written, weights in total) before each weight.
        content_digest: End the file with a digest of its content; see `dovetail_onnx.saving`.

    Returns:
        The model file, and the data file if there is one.

    Raises:
        DovetailError: The disk is full, the folder is not writable, the model is too large for one file, or the size of
            a weight does not match its shape.
    """
    path = Path(path)
    with gc_paused():
        mirror_annotations(model)
        skeleton = skeleton_of(model)
    size = sum(tensor.nbytes for tensor in skeleton.weights.values())
    if external is None:
        external = size > EXTERNAL_ABOVE
    elif not external and size > (1 << 31) - (1 << 24):
        raise DovetailError(f"{path}: {size >> 20} MiB of weights do not fit into one file", "save with external data")
    proto = skeleton.proto if skeleton is not model.lazy else _copy(skeleton.proto)
    _drop_content_digest(proto)
    stubs = [tensor for tensor in proto.graph.initializer if is_stub(tensor)]
    tensors = [skeleton.weights[tensor.name] for tensor in stubs]
    tell = progress or _silent
    with named(path), workers():
        old_data = data_files(path)
        data = _write_data(path, stubs, tensors, proto, tell) if external and tensors else None
        with replacing_file(path) as file:
            hashed = _Hashed(file)
            if data is not None:
                hashed.write(proto.SerializeToString(deterministic=True))
            else:
                _write_whole(hashed, proto, stubs, tensors, tell)
            if content_digest:
                hashed.write(make_content_digest(hashed.digest.digest(), [bytes.fromhex(data.sha256)] if data else []))
    saved = [hashed.saved(path), *([data] if data else [])]
    remove_data(old_data - {file.path for file in saved})
    return saved


def saved_size(model: Model, external: bool | None = None) -> int:
    """Return the bytes that `save_model` writes for `model`, or slightly more; no weight is read."""
    with gc_paused():
        mirror_annotations(model)
        skeleton = skeleton_of(model)
    sizes = [tensor.nbytes for tensor in skeleton.weights.values()]
    outside = external or external is None and sum(sizes) > EXTERNAL_ABOVE
    written = 0
    for size in sizes:
        written += (-written % _ALIGNMENT if outside else 0) + size
    return skeleton.proto.ByteSize() + written + (_REFERENCE * len(sizes) if outside else 0) + _DIGEST


class _Hashed:
    """A writable file that tracks size and digest."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, chunk: bytes | memoryview) -> None:
        self._file.write(chunk)
        self.digest.update(chunk)
        self.size += len(chunk)

    def saved(self, path: Path) -> SavedFile:
        return SavedFile(path, self.size, self.digest.hexdigest())


def _copy(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Copy the proto of a lazy model, because saving changes it."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _drop_content_digest(proto: onnx.ModelProto) -> None:
    for index in reversed(range(len(proto.metadata_props))):
        if proto.metadata_props[index].key == CONTENT_DIGEST:
            del proto.metadata_props[index]


def tensor_chunks(tensor) -> Iterator[memoryview | bytes]:
    """Yield the bytes of a tensor, little-endian, in chunks of a few MiB; a tensor with `chunks()` provides its own."""
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
    """Yield the bytes of an external tensor by reading its file, without keeping them in memory.

    If the tensor is mapped already, the mapping is used, because the file may have been replaced since.
    """
    left = tensor.nbytes
    if tensor.raw is not None:
        from dovetail_onnx.external import mapped_chunks

        yield from mapped_chunks(tensor.raw, tensor.offset or 0, left)
        return
    with open(tensor.path, "rb") as file:
        file.seek(tensor.offset or 0)
        while left and (chunk := file.read(min(left, _CHUNK))):
            yield chunk
            left -= len(chunk)


def _write_tensor(file: _Hashed | DataFile, tensor: ir.TensorProtocol) -> None:
    """Write the bytes of one weight. Their number is checked, because a wrong one makes the whole file unreadable."""
    before = file.size
    for chunk in tensor_chunks(tensor):
        file.write(chunk)
    if file.size - before != tensor.nbytes:
        found, shape = file.size - before, list(tensor.shape)
        raise DovetailError(
            f"weight '{tensor.name}' has {found} bytes, and its shape {shape} needs {tensor.nbytes}",
            "export or copy the source model again",
        )


def _silent(what: str, done: int, total: int) -> None:
    """Ignore progress."""


def _write_whole(file: _Hashed, proto: onnx.ModelProto, stubs: Sequence, tensors: Sequence, tell: Progress) -> None:
    """Write one file with all weights; `proto` loses its graph on the way."""
    import onnx

    headers = []
    for proto_tensor, tensor in zip(stubs, tensors, strict=True):
        header = onnx.TensorProto(name=proto_tensor.name, dims=proto_tensor.dims, data_type=proto_tensor.data_type)
        headers.append((header.SerializeToString(), tensor.nbytes))
    _drop_stubs(proto.graph)
    graph = proto.graph.SerializeToString(deterministic=True)
    proto.ClearField("graph")
    for piece in join(proto.SerializeToString(deterministic=True), graph, headers):
        if isinstance(piece, bytes):
            file.write(piece)
        else:
            tell("save", piece, len(tensors))
            _write_tensor(file, tensors[piece])


def _drop_stubs(graph: onnx.GraphProto) -> None:
    inline = [tensor for tensor in graph.initializer if not is_stub(tensor)]
    del graph.initializer[:]
    graph.initializer.extend(inline)


def _write_data(path: Path, stubs: Sequence, tensors: Sequence, proto: onnx.ModelProto, tell: Progress) -> SavedFile:
    """Write the data file, named by a digest of its content, and redirect the stubs to it.

    A large one is resumed where an earlier run was killed (see `dovetail_onnx.files.resumable`).
    Weights that shared one place, such as an embedding and a head, share one again.
    """
    from dovetail_onnx.partial_tensors import losses_of

    places: list[tuple[int, int]] = []
    known: dict[tuple, tuple[int, int]] = {}

    def target(digest: str) -> Path:
        return path.with_name(f"{path.stem}-{digest[:12]}.data")

    size = sum(tensor.nbytes for tensor in tensors)
    graph = proto.SerializeToString(deterministic=True)
    with data_file(path, target, size, graph) as file:
        for done, tensor in enumerate(tensors):
            tell("save", done, len(tensors))
            source = _source_of(tensor)
            if source in known:
                places.append(known[source])
                continue
            file.write(bytes(-file.size % _ALIGNMENT))
            places.append((file.size, tensor.nbytes))
            if source:
                known[source] = places[-1]
            if not file.has(tensor.name or "", tensor.nbytes):
                _write_tensor(file, tensor)
                file.complete(tensor.name or "", tensor.nbytes, bool(losses_of(tensor)))
    digest = file.digest.hexdigest()
    for stored, (offset, length) in zip(stubs, places, strict=True):
        del stored.external_data[:]
        for key, value in (("location", target(digest).name), ("offset", offset), ("length", length)):
            entry = stored.external_data.add()
            entry.key, entry.value = key, str(value)
    return SavedFile(target(digest), file.size, digest)


def _source_of(tensor: ir.TensorProtocol) -> tuple:
    """Return the place that an unchanged weight is read from; empty for one that is in memory, or computed."""
    import onnx_ir as ir

    if not isinstance(tensor, ir.ExternalTensor):
        return ()
    return str(tensor.path), tensor.offset or 0, tensor.nbytes


def data_files(path: Path) -> set[Path]:
    """Return the data files that `save_model` wrote for the model at `path`; files of others are never included."""
    pattern = re.compile(re.escape(path.stem) + r"-[0-9a-f]{12}\.data")
    beside = [file for file in path.parent.glob("*.data") if pattern.fullmatch(file.name)] if path.is_file() else []
    return {file for file in beside if _mentions(path, file.name)}


def remove_data(stale: set[Path]) -> None:
    """Remove data files of a replaced model, unless another model in their folder refers to them."""
    for file in stale:
        with contextlib.suppress(OSError):
            if not any(_mentions(model, file.name) for model in file.parent.glob("*.onnx")):
                file.unlink()


def _mentions(model: Path, name: str) -> bool:
    if not model.is_file() or not model.stat().st_size:
        return False
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name.encode()) >= 0
