"""Write the outer messages of an ONNX file, with the weights streamed between them.

An ONNX file is nested protobuf messages: a model holds a graph (field 7), a graph holds initializers (field 5), and an
initializer holds its bytes in `raw_data` (field 9). See the protobuf wire format
(https://protobuf.dev/programming-guides/encoding/) and the field numbers of `onnx.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["GRAPH_INITIALIZER", "LENGTH_DELIMITED", "MODEL_GRAPH", "TENSOR_RAW_DATA", "join", "tag", "varint"]

MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_RAW_DATA = 7, 5, 9
"""Numbers of fields: of the graph in a model, of an initializer in a graph, of the bytes in a tensor."""

LENGTH_DELIMITED = 2
"""The wire type of messages, texts and bytes."""


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
    return varint(field << 3 | LENGTH_DELIMITED)


def join(model: bytes, graph: bytes, weights: Iterable[tuple[bytes, int]]) -> Iterator[bytes | int]:
    """Yield the pieces of a model file: bytes to write, or the index of the weight whose data comes next.

    Args:
        model: A serialised `ModelProto` without its graph.
        graph: The serialised `GraphProto` without `weights`.
        weights: For each weight the bytes of its `TensorProto` without data, and the length of its data.
    """
    sizes = []
    for header, length in weights:
        key = tag(TENSOR_RAW_DATA) + varint(length)
        inner = len(header) + len(key) + length
        sizes.append((tag(GRAPH_INITIALIZER) + varint(inner) + header + key, length))
    total = len(graph) + sum(len(prefix) + length for prefix, length in sizes)
    yield model + tag(MODEL_GRAPH) + varint(total) + graph
    for index, (prefix, _) in enumerate(sizes):
        yield prefix
        yield index
