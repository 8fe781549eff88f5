"""Split an ONNX file into its outer messages and its weights, without parsing the weights into a proto.

An ONNX file is nested protobuf messages: a model holds a graph, a graph holds initializers, and an initializer holds
its bytes in `raw_data`. `split` locates those bytes and leaves them on disk; `dovetail.ir.wire.join` streams them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dovetail.ir.wire import GRAPH_INITIALIZER, LENGTH_DELIMITED, MODEL_GRAPH, TENSOR_RAW_DATA, tag, varint

__all__ = ["RawData", "split"]


@dataclass(frozen=True, slots=True)
class RawData:
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
    head, tail, graph = [], [], None
    for field, wire, start, value_start, end in _fields(buffer, 0, len(buffer)):
        if field == MODEL_GRAPH and wire == LENGTH_DELIMITED and graph is None:
            graph = (value_start, end)
        else:
            (head if graph is None else tail).append(buffer[start:end])
    if graph is None:
        return b"".join(head), []
    kept, weights, copied = [], [], graph[0]
    for field, wire, start, value_start, end in _fields(buffer, *graph):
        # A message shorter than `smallest` cannot hold that many bytes of data.
        if field == GRAPH_INITIALIZER and wire == LENGTH_DELIMITED and end - value_start >= smallest:
            found = _raw_data(buffer, value_start, end, smallest)
            if found is not None:
                kept.append(buffer[copied:start])
                weights.append(found)
                copied = end
    kept.append(buffer[copied : graph[1]])
    size = sum(map(len, kept))
    return b"".join([*head, tag(MODEL_GRAPH), varint(size), *kept, *tail]), weights


def _raw_data(buffer: memoryview, start: int, stop: int, smallest: int) -> tuple[bytes, RawData] | None:
    rest, data = [], None
    for field, wire, field_start, value_start, end in _fields(buffer, start, stop):
        if field == TENSOR_RAW_DATA and wire == LENGTH_DELIMITED:
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
        if wire == LENGTH_DELIMITED:
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
