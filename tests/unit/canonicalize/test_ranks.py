"""Ranks that onnx's inference leaves out although they are known: no engine is built for a value without a rank."""

import dovetail
import onnx
import pytest
from dovetail.passes import Pipeline
from dovetail_transforms.canonicalize.inference import infer_types

RANKS = {
    "y = STFT(signal, step, window)": 4,
    "y = HannWindow(step)": 1,
    "y = MelWeightMatrix(step, step, step, low, low)": 2,
    "y = CenterCropPad(x, target)": 4,
    "y = Pad(x, target, , axes)": 4,
    "y = Unsqueeze(x, axes)": 6,
    "y = Squeeze(x, axes)": 2,
    "y = ReduceSum<keepdims = 1>(x, axes)": 4,
    "y = ReduceSum<keepdims = 0>(x, axes)": 2,
    "y = ReduceSum<keepdims = 0>(x, list)": None,
    "s = STFT(signal, step, window) y = ReduceL2<keepdims = 0>(s, axes)": 2,
}


@pytest.mark.parametrize("text", RANKS)
def test_the_rank_is_known(text):
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]> g (
        float[A,B,C,D] x, float[A,T,1] signal, float[W] window, float low, int64 step, int64[4] target, int64[2] axes,
        int64[K] list) => (y) {{ {text} }}""")
    found = infer_types(model).graph.output[0].type.tensor_type
    assert (len(found.shape.dim) if found.HasField("shape") else None) == RANKS[text]


def test_a_product_behind_a_spectrum_reaches_its_backend():
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18]> g (float[N,T,1] x) => (y) <
        int64 step = {2}, float[4] window = {1, 1, 1, 1}, int64[1] last = {-1}, float[3,2] w = {1,2,3,4,5,6}> {
        s = STFT(x, step, window) [magnitude] m = ReduceL2<keepdims = 0>(s, last) [product] y = MatMul(m, w) }""")
    placed = {node.name: node.backend for node in dovetail.compile(model, ["cpu-bf16"], verify=False).plan.nodes}
    assert placed["product"] == "cpu-bf16"


def test_operators_of_onnx_runtime_get_shapes_where_an_optimizer_left_types_alone():
    """Its optimizer inserts them with an element type; without ranks no engine would take what follows."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]> g (
        float[N,3,4] x, float[4] scale, float[4,5] w) => (float[N,3,5] y) {
        skipped = com.microsoft.SkipSimplifiedLayerNormalization(x, x, scale)
        product = MatMul(skipped, w)
        y = com.microsoft.FastGelu(product) }""")
    for name in ("skipped", "product"):
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    opened = dovetail.open(model)
    Pipeline.parse("normalize", dovetail.load_plugins().registry).run(opened)
    assert [[str(extent) for extent in node.outputs[0].shape] for node in opened.nodes()] == [
        ["N", "3", "4"], ["N", "3", "5"], ["N", "3", "5"],
    ]  # fmt: skip
