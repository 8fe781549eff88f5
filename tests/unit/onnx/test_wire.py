"""The wire format: what `split` takes apart, `join` puts together; damaged bytes are refused."""

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail_onnx.wire import join, split, tag, varint
from onnx import numpy_helper

TEXT = '<ir_version: 10, opset_import: ["": 22]> g (float[2] x) => (float[2] y) { y = Relu (x) }'


def model(*sizes):
    """A model with one float32 weight per size."""
    proto = onnx.parser.parse_model(TEXT)
    for index, size in enumerate(sizes):
        array = np.arange(size, dtype=np.float32) + index
        proto.graph.initializer.append(numpy_helper.from_array(array, f"w{index}"))
    return proto


def apart(proto, smallest):
    data = proto.SerializeToString()
    rest, found = split(memoryview(data), smallest)
    return onnx.ModelProto.FromString(rest), [
        (onnx.TensorProto.FromString(header), data[place.offset : place.offset + place.length])
        for header, place in found
    ]


@pytest.mark.parametrize(
    ("sizes", "smallest", "taken"),
    [
        ([], 1, []),
        ([10], 41, []),
        ([10], 40, ["w0"]),
        ([1, 100, 2, 200], 100, ["w1", "w3"]),
        ([300, 300], 0, ["w0", "w1"]),
    ],
)
def test_split_takes_out_what_is_large_enough(sizes, smallest, taken):
    proto = model(*sizes)
    rest, found = apart(proto, smallest)
    assert [header.name for header, _ in found] == taken
    assert [tensor.name for tensor in rest.graph.initializer] == [
        t.name for t in proto.graph.initializer if t.name not in taken
    ]
    originals = {tensor.name: tensor.raw_data for tensor in proto.graph.initializer}
    for header, data in found:
        assert not header.HasField("raw_data")
        assert data == originals[header.name]
    assert rest.graph.node == proto.graph.node
    assert rest.opset_import == proto.opset_import


@pytest.mark.parametrize("sizes", [[], [1], [100, 1, 50000]])
def test_join_is_the_inverse(sizes):
    proto = model(*sizes)
    rest, found = apart(proto, 0)
    outer = onnx.ModelProto()
    outer.CopyFrom(rest)
    outer.ClearField("graph")
    graph, weights = rest.graph.SerializeToString(), [(h.SerializeToString(), len(data)) for h, data in found]
    pieces = join(outer.SerializeToString(), graph, weights)
    whole = b"".join(piece if isinstance(piece, bytes) else found[piece][1] for piece in pieces)
    again = onnx.ModelProto.FromString(whole)
    assert again == proto


@pytest.mark.parametrize("keep", [1, 10, 30, 0.5, 0.9, -1])
def test_a_message_that_is_cut_short_is_refused(keep):
    data = model(100).SerializeToString()
    keep = int(keep * len(data)) if isinstance(keep, float) else keep
    with pytest.raises(ValueError, match="byte"):
        split(memoryview(data[:keep]), 1)


@pytest.mark.parametrize("data", [b"\x0b\x00", b"\xff" * 12, b"\x3a\x05ab", b"\x02\x00"])
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(ValueError, match="byte"):
        split(memoryview(data), 1)


@pytest.mark.parametrize(("number", "encoded"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_varint(number, encoded):
    assert varint(number) == encoded


def test_tag():
    assert tag(7) == b"\x3a"
