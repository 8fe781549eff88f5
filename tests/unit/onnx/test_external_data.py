"""Weights in files beside the model: checked by name before any work begins, and read when they are wanted."""

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_model
from onnx import TensorProto, numpy_helper

WEIGHT = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
BYTES = WEIGHT.tobytes()
HEAD = '<ir_version: 10, opset_import: ["": 22]>'


@pytest.fixture
def make(tmp_path):
    """A model whose weight lies elsewhere, with the given entries; `data` is written to `w.bin`."""

    def write(data=BYTES, dtype=TensorProto.FLOAT, dims=(32, 64), **entries):
        proto = onnx.parser.parse_model(HEAD + "g (float[2,32] x) => (float[2,64] y) { y = MatMul (x, w) }")
        tensor = TensorProto(name="w", data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in ({"location": "w.bin"} | entries).items():
            tensor.external_data.add(key=key, value=str(value))
        proto.graph.initializer.append(tensor)
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        if data is not None:
            (folder / "w.bin").write_bytes(data)
        return folder / "m.onnx"

    return write


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (WEIGHT.tobytes(), {}),
        (WEIGHT.tobytes(), {"offset": 0, "length": WEIGHT.nbytes}),
        (bytes(4096) + WEIGHT.tobytes(), {"offset": 4096, "length": WEIGHT.nbytes}),
        (WEIGHT.tobytes() + b"more", {}),
    ],
)
def test_what_is_there_is_read(make, data, entries):
    model = open_model(make(data, **entries))
    assert (model.graph.initializers["w"].const_value.numpy() == WEIGHT).all()


@pytest.mark.parametrize(
    ("data", "entries", "says"),
    [
        (None, {}, "is missing"),
        (b"short", {}, "is cut short: .* has 5 bytes, 8192 are needed"),
        (WEIGHT.tobytes(), {"offset": 4}, "has 8192 bytes, 8196 are needed"),
        (WEIGHT.tobytes(), {"offset": "x"}, "not a number"),
        (WEIGHT.tobytes(), {"location": "../w.bin"}, "outside the model's folder"),
        (WEIGHT.tobytes(), {"location": "/etc/passwd"}, "outside the model's folder"),
        (WEIGHT.tobytes(), {"location": ""}, "no location"),
        (WEIGHT.tobytes(), {"location": "."}, "is missing"),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_weight(make, data, entries, says):
    with pytest.raises(DovetailError, match=says) as caught:
        open_model(make(data, **entries))
    assert "initializer 'w'" in str(caught.value)


def test_a_link_out_of_the_folder_is_not_followed(make, tmp_path):
    path = make(None)
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    (path.parent / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(DovetailError, match="outside the model's folder"):
        open_model(path)


def test_a_weight_whose_bytes_do_not_fit_its_shape_is_refused(tmp_path):
    proto = onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Relu (x) }")
    tensor = numpy_helper.from_array(WEIGHT, "w")
    tensor.dims[0] = 33
    proto.graph.initializer.append(tensor)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(DovetailError, match=r"initializer 'w' holds 8192 bytes, but \[33, 64\] float needs 8448"):
        open_model(path)
