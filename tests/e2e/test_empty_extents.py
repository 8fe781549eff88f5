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


@pytest.mark.generated(one_of=4)
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
    compiled = dovetail.compile(model, ["cpu-int8:activations=dynamic"], data=feeds)
    operators = {node.outputs[0].name: node.op_type for node in compiled.model.graph}
    assert operators["y"] == "MatMul"
    assert "MatMulInteger" in operators.values()
