"""Weights that several models of a folder have in common, stored once."""

from __future__ import annotations

import hashlib
import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx

_SMALLEST = 1 << 14  # bytes; what is smaller is not worth a reference into another file
_ALIGNMENT = 4096  # bytes; a page, so that readers can map each weight
_CHUNK = 1 << 22  # bytes


class WeightLocation(NamedTuple):
    """The location of a weight's bytes."""

    file: str
    offset: int
    length: int


def share_weights(folder: Path, models: Sequence[Path]) -> None:
    """Let models refer to the weights of earlier ones that have the same bytes, and write their own data without them.

    Only models with external data share, and only those of one folder: ONNX Runtime reads no data outside of it.

    Args:
        folder: The folder.
        models: Their files in it; the first ones keep all their weights.
    """
    import onnx

    if len(models) < 2:
        return
    protos = {path: onnx.load(folder / path, load_external_data=False) for path in models}
    places = {path: _places(proto) for path, proto in protos.items()}
    # Only weights whose size occurs in several models are read.
    sizes = Counter(size for path in models for size in {(path.parent, place.length) for _, place in places[path]})
    known: dict[tuple[Path, str], WeightLocation] = {}
    for path in models:
        shared = []
        for tensor, place in places[path]:
            if place.length < _SMALLEST or sizes[path.parent, place.length] < 2:
                continue
            key = path.parent, _digest(folder / path.parent / place.file, place)
            found = known.setdefault(key, place)
            if found.file != place.file:
                shared.append((tensor, found))
        if shared:
            _rewrite(folder, path, protos[path], places[path], shared)


def _rewrite(
    folder: Path,
    path: Path,
    proto: onnx.ModelProto,
    places: Sequence[tuple[onnx.TensorProto, WeightLocation]],
    shared: Sequence[tuple[onnx.TensorProto, WeightLocation]],
) -> None:
    """Write a model's data without the shared weights, and the model with the new locations."""
    from dovetail_onnx.files.writing import replacing_file
    from dovetail_onnx.saving import CONTENT_DIGEST

    elsewhere = {id(tensor): place for tensor, place in shared}
    old = {place.file for _, place in places}
    digest = hashlib.sha256()
    name = ""
    moved: dict[WeightLocation, WeightLocation] = {}
    parent = folder / path.parent

    def named() -> Path:
        return parent / f"{path.stem}-{digest.hexdigest()[:12]}.data"

    with replacing_file(parent / f"{path.stem}-shared.data", named) as file:
        size = 0
        for tensor, place in places:
            if id(tensor) in elsewhere or place in moved:
                continue
            gap = bytes(-size % _ALIGNMENT)
            begin = size + len(gap)
            for chunk in (gap, *_chunks(parent / place.file, place)):
                digest.update(chunk)
                file.write(chunk)
                size += len(chunk)
            moved[place] = WeightLocation("", begin, place.length)
    name = named().name
    for tensor, place in places:
        found = elsewhere.get(id(tensor)) or moved[place]._replace(file=name)
        del tensor.external_data[:]
        for key, value in (("location", found.file), ("offset", found.offset), ("length", found.length)):
            tensor.external_data.add(key=key, value=str(value))
    # The digest of the content that it was saved with is no longer that of its files.
    kept = [entry for entry in proto.metadata_props if entry.key != CONTENT_DIGEST]
    copies = [type(entry).FromString(entry.SerializeToString()) for entry in kept]
    del proto.metadata_props[:]
    proto.metadata_props.extend(copies)
    with replacing_file(folder / path) as file:
        file.write(proto.SerializeToString(deterministic=True))
    for stale in old - {name}:
        (parent / stale).unlink(missing_ok=True)


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the weights of a graph and of its bodies."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from tensors_of(attribute.g)


def _places(proto: onnx.ModelProto) -> list[tuple[onnx.TensorProto, WeightLocation]]:
    """Return the weights of a model that are in other files, each with its place."""
    return [(tensor, place) for tensor in tensors_of(proto.graph) if (place := _place_of(tensor)) is not None]


def _place_of(tensor: onnx.TensorProto) -> WeightLocation | None:
    fields = {entry.key: entry.value for entry in tensor.external_data}
    if "location" not in fields or "length" not in fields:
        return None
    return WeightLocation(fields["location"], int(fields.get("offset", 0)), int(fields["length"]))


def _digest(file: Path, place: WeightLocation) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(file, place):
        digest.update(chunk)
    return f"{place.length}:{digest.hexdigest()}"


def _chunks(file: Path, place: WeightLocation) -> Iterator[bytes]:
    if not place.length:
        return
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for begin in range(place.offset, place.offset + place.length, _CHUNK):
            yield content[begin : min(begin + _CHUNK, place.offset + place.length)]
