"""Values whose declared shapes are wrong, at a border between regions: computed as ONNX Runtime does with the whole."""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[ROWS] y, float[ROWS] z) {
  [square] h = Mul(x, x)  [erf] y = Erf(h)  [last] z = Softmax(y) }"""
X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


@pytest.mark.generated
@pytest.mark.parametrize("pin", ["erf=host", "last=host", "square=host"])
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
@pytest.mark.parametrize("rows", ["3, 4", "9, 4", "N, 7", "5"], ids=["fewer", "more", "columns", "rank"])
def test_declared_rows_of_a_border_are_no_promise(rows, backend, pin):
    model = onnx.parser.parse_model(NET.replace("ROWS", rows))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = dict(zip(("y", "z"), session.run(None, {"x": X})))
    data = {"x": X} if backend == "cpu-int8" else None
    compiled = dovetail.compile(model, backend, pins=[pin], data=data)
    for _ in range(2):
        for name, array in compiled.run({"x": X}).items():
            np.testing.assert_allclose(array, expected[name], atol=0.02)
    assert {one.node for one in compiled.remarks if one.rule == "declared-shape"} == {"y", "z"}


def test_inputs_of_the_model_keep_their_shapes():
    fixed = onnx.parser.parse_model(NET.replace("N, 4] x", "3, 4] x").replace("ROWS", "3, 4"))
    compiled = dovetail.compile(fixed, "cpu-bf16", pins=["last=host"])
    with pytest.raises(dovetail.DovetailError, match="x"):
        compiled.run({"x": X})
