"""Splitting of an ONNX file into its outer messages and its weights, and joining them again.

An ONNX file is nested protobuf messages: a model holds a graph (field 7), a graph holds initializers (field 5), and an
initializer holds its bytes in `raw_data` (field 9). `split` locates those bytes and leaves them on disk, so that no
proto ever holds the weights; `join` lets the caller stream them between the messages. See the protobuf wire format
(https://protobuf.dev/programming-guides/encoding/) and the field numbers of `onnx.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9  # numbers of fields
_LENGTH_DELIMITED = 2  # the wire type of messages, texts and bytes


class RawData(NamedTuple):
    """Offset and length of one initializer's bytes in the file."""

    offset: int
    length: int


def split(buffer: memoryview, smallest: int) -> tuple[bytes, list[tuple[bytes, RawData]]]:
    """Split off the initializers whose `raw_data` has at least `smallest` bytes.

    Returns:
        The model's bytes without those initializers, and for each of them, in file order, the bytes of its
        `TensorProto` without `raw_data`, and the location of its data.

    Raises:
        ValueError: The bytes are not a protobuf message.
    """
    head: list[memoryview] = []
    tail: list[memoryview] = []
    graph = None
    for field, wire, start, value_start, end in _fields(buffer, 0, len(buffer)):
        if field == _MODEL_GRAPH and wire == _LENGTH_DELIMITED and graph is None:
            graph = (value_start, end)
        else:
            (head if graph is None else tail).append(buffer[start:end])
    if graph is None:
        return b"".join(head), []
    kept, weights, copied = [], [], graph[0]
    for field, wire, start, value_start, end in _fields(buffer, *graph):
        # A message shorter than `smallest` cannot hold that many bytes of data.
        if field == _GRAPH_INITIALIZER and wire == _LENGTH_DELIMITED and end - value_start >= smallest:
            found = _raw_data(buffer, value_start, end, smallest)
            if found is not None:
                kept.append(buffer[copied:start])
                weights.append(found)
                copied = end
    kept.append(buffer[copied : graph[1]])
    size = sum(map(len, kept))
    return b"".join([*head, tag(_MODEL_GRAPH), varint(size), *kept, *tail]), weights


def join(model: bytes, graph: bytes, weights: Iterable[tuple[bytes, int]]) -> Iterator[bytes | int]:
    """Yield the pieces of a model file: bytes to write, or the index of the weight whose data comes next.

    Args:
        model: A serialized `ModelProto` without its graph.
        graph: The serialized `GraphProto` without `weights`.
        weights: For each weight the bytes of its `TensorProto` without data, and the length of its data.
    """
    sizes = []
    for header, length in weights:
        key = tag(_TENSOR_RAW_DATA) + varint(length)
        inner = len(header) + len(key) + length
        sizes.append((tag(_GRAPH_INITIALIZER) + varint(inner) + header + key, length))
    total = len(graph) + sum(len(prefix) + length for prefix, length in sizes)
    yield model + tag(_MODEL_GRAPH) + varint(total) + graph
    for index, (prefix, _) in enumerate(sizes):
        yield prefix
        yield index


def _raw_data(buffer: memoryview, start: int, stop: int, smallest: int) -> tuple[bytes, RawData] | None:
    rest, data = [], None
    for field, wire, field_start, value_start, end in _fields(buffer, start, stop):
        if field == _TENSOR_RAW_DATA and wire == _LENGTH_DELIMITED:
            data = RawData(value_start, end - value_start)
        else:
            rest.append(buffer[field_start:end])
    if data is None or data.length < smallest:
        return None
    return b"".join(rest), data


def _fields(buffer: memoryview, position: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (field number, wire type, start of the field, start of its value, end) of each field of a message."""
    while position < stop:
        start = position
        # Keys and most lengths are one byte and decoded inline: function calls would dominate the time on large files.
        key = buffer[position]
        if key < 0x80:
            position += 1
        else:
            key, position = _read_varint(buffer, position, stop)
        field, wire = key >> 3, key & 7
        if wire == _LENGTH_DELIMITED:
            if position < stop and buffer[position] < 0x80:
                end = position + 1 + buffer[position]
                position += 1
            else:
                length, position = _read_varint(buffer, position, stop)
                end = position + length
        elif wire == 0:
            end = _read_varint(buffer, position, stop)[1]
        elif wire == 5:
            end = position + 4
        elif wire == 1:
            end = position + 8
        else:
            raise ValueError(f"byte {start}: wire type {wire} is not one of protobuf's")
        if end > stop or field == 0:
            raise ValueError(f"byte {start}: a field ends after its message")
        yield field, wire, start, position, end
        position = end


def _read_varint(buffer: memoryview, position: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while position < stop and shift < 64:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError(f"byte {position}: a number does not end")


def varint(value: int) -> bytes:
    """Return the protobuf encoding of a non-negative integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(field: int) -> bytes:
    """Return the key of a length-delimited field."""
    return varint(field << 3 | _LENGTH_DELIMITED)


GRAPH_DEPTH = 24
"""Maximum nesting of bodies. Each takes three of the 100 message levels that protobuf reads."""

BRACKET_DEPTH = 200
"""Maximum nesting of brackets in ONNX text, whose parser is recursive; a body takes two."""

EXPANDED_NODES = 250_000
"""Maximum nodes of the model with all local functions inlined."""

EXPANDED_BYTES = 1 << 30
"""Maximum bytes of that model without the weights of the main graph; a protobuf message is limited to 2 GiB."""

SPARSE_BYTES = 1 << 28
"""Maximum bytes of one sparse tensor when dense."""
