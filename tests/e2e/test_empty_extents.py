"""Values without elements: nothing measures them, and models that have some compile with data on every backend."""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest

BODIES = {
    "a sum of nothing": "e = Slice(z, none, none, none) y = ReduceSum<keepdims = 0>(e, none)",
    "a product of no rows": "e = Slice(z, none, none, none) f = Relu(e) y = MatMul(f, w)",
    "a product over nothing": "e = Slice(z, none, none, last) f = Slice(w, none, none, none) y = MatMul(e, f)",
    "a layer with a bias": "e = Slice(z, none, none, none) y = Gemm(e, w, b)",
    "no images": "e = Slice(z, none, none, none) i = Reshape<allowzero = 1>(e, images) y = Conv(i, k, c)",
    "nothing and something": "e = Slice(z, none, none, none) f = Concat<axis = 0>(e, z) y = MatMul(f, w)",
    "no indices": "e = Gather(z, empty) y = MatMul(e, w)",
    "normalized": "e = Slice(z, none, none, none) y = LayerNormalization(e, b, b)",
}  # fmt: skip
BACKENDS = [
    "gpu-fp16", "gpu-fp16:policies=lean", "cpu-bf16", "cpu-int8", "cpu-int8:activations=asymmetric",
    "cpu-int8:activations=dynamic", "cpu-int8:weights=int4", "ppl-int8", "tensorrt",
]  # fmt: skip


@pytest.mark.generated(one_of=8)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("body", BODIES)
def test_models_with_empty_values_compile_with_data(body, backend):
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (float[3,4] x) => (z, y) <
        float[4,4] w = {{1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}}, float[4] b = {{1,2,3,4}}, int64[1] none = {{0}},
        int64[1] last = {{1}}, int64[0] empty = {{}}, int64[4] images = {{0,1,2,2}}, float[2,1,1,1] k = {{1,2}},
        float[2] c = {{1,2}}> {{ m = MatMul(x, w) z = Relu(m) {BODIES[body]} }}""")
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    compiled = dovetail.compile(model, [backend], data=feeds)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for got, array in zip(compiled.run(feeds).values(), expected):
        np.testing.assert_allclose(got, array, atol=0.05 * np.abs(array).max(initial=1))


def test_no_sum_of_no_products_is_computed_in_integers():
    """ONNX Runtime's integer kernels leave such a sum as the memory was, which is zero most of the time."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[3,4] x) => (z, y) <
        float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}, int64[1] none = {0}, int64[1] last = {1}> {
        z = MatMul(x, w) e = Slice(z, none, none, last) f = Slice(w, none, none, none) y = MatMul(e, f) }""")
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    compiled = dovetail.compile(model, ["cpu-int8:activations=dynamic"], data=feeds, low=["type:MatMul"])
    operators = {node.outputs[0].name: node.op_type for node in compiled.model.graph}
    assert operators["y"] == "MatMul"
    assert "MatMulInteger" in operators.values()


GATHERS = {
    "no rows": ("float[0,4] x, int64[0] i", "float[0,4] y", 0),
    "no columns": ("float[3,0] x, int64[2] i", "float[2,0] y", 0),
    "columns of no rows": ("float[0,4] x, int64[2] i", "float[0,2] y", 1),
    "no indices": ("float[3,4] x, int64[0] i", "float[0,4] y", 0),
    "in the middle": ("float[2,0,4] x, int64[2] i", "float[2,0,2] y", 2),
}


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8:weights=int8"])
@pytest.mark.parametrize("name", GATHERS)
def test_gathers_of_nothing_in_static_shapes(name, backend):
    """OpenVINO's kernel divides by the extent, which ends the process."""
    inputs, output, axis = GATHERS[name]
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => ({output}) {{ y = Gather<axis = {axis}>(x, i) }}'
    )
    shapes = [[extent.dim_value for extent in value.type.tensor_type.shape.dim] for value in model.graph.input]
    feeds = {"x": np.ones(shapes[0], np.float32), "i": np.zeros(shapes[1], np.int64)}
    (got,) = dovetail.compile(model, [backend], verify=False).run(feeds).values()
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert got.shape == expected.shape and got.dtype == expected.dtype


TRACKER = """<ir_version: 8, opset_import: ["": 17]> g (float[1,4] image, float[T,4] tracks)
=> (float[1,4] y, float[T,4] z) <float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
  a = MatMul (image, w)  y = Sigmoid (a)  b = MatMul (tracks, w)  z = Relu (b) }"""


@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8", "gpu-fp16"])
def test_samples_may_have_no_rows_of_one_input(backend):
    rng = np.random.default_rng(0)
    rows = [0, 3, 1, 0, 5, 0]
    data = [{"image": rng.random((1, 4), np.float32), "tracks": rng.random((count, 4), np.float32)} for count in rows]
    result = dovetail.compile(onnx.parser.parse_model(TRACKER), backend, data=data)
    assert result.verification.worst_snr_db > 30
    for feeds in data:
        np.testing.assert_allclose(result.run(feeds)["z"], feeds["tracks"], atol=0.02)


def test_an_extent_that_is_always_zero_is_not_fixed():
    data = [{"image": np.ones((1, 4), np.float32), "tracks": np.ones((0, 4), np.float32)}] * 2
    with pytest.raises(dovetail.DovetailError, match="no engine is compiled for an extent of zero"):
        dovetail.compile(onnx.parser.parse_model(TRACKER), "cpu-bf16", data=data, fix_shapes="data")
