"""Ranks that onnx's inference leaves out although they are known: no engine is built for a value without a rank."""

import dovetail
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
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


TREES = """nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0],
    nodes_values = [1.5, 0.0, 0.0], nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],
    nodes_falsenodeids = [2, 0, 0]"""
OF_ML = [
    "y = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (x)",
    'y = ai.onnx.ml.Normalizer <norm = "L2"> (x)',
    "y = ai.onnx.ml.Imputer <imputed_value_floats = [0.5], replaced_value_float = 2.0> (x)",
    "y = ai.onnx.ml.Imputer <imputed_value_int64s = [5], replaced_value_int64 = 2> (i)",
    "y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0, 3.0, 4.0], intercepts = [1.0, 2.0], targets = 2> (x)",
    f"""y = ai.onnx.ml.TreeEnsembleRegressor <{TREES}, n_targets = 3, target_treeids = [0, 0], target_nodeids = [1, 2],
    target_ids = [0, 2], target_weights = [1.0, 2.0]> (x)""",
    f"""label, y = ai.onnx.ml.TreeEnsembleClassifier <{TREES}, classlabels_int64s = [4, 5], class_treeids = [0, 0],
    class_nodeids = [1, 2], class_ids = [0, 1], class_weights = [1.0, 2.0]> (x)""",
    'y = ai.onnx.ml.LabelEncoder <classes_strings = ["a", "b"]> (i)',
]


@pytest.mark.parametrize("text", OF_ML, ids=lambda text: text.split("ml.")[1].split()[0])
def test_results_of_tables_and_trees_have_the_shape_that_is_computed(text):
    """onnx infers none of them, and no engine would take what follows."""
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18, "ai.onnx.ml": 1]> g (
        float[N,2] x, int64[N,2] i) => (y) {{ {text} }}""")
    opened = dovetail.open(model)
    Pipeline.parse("normalize", dovetail.load_plugins().registry).run(opened)
    [told] = opened.graph.outputs
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "i": np.ones((3, 2), np.int64)}
    [computed] = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert tuple(3 if str(extent) == "N" else extent for extent in told.shape) == computed.shape
    assert (told.dtype == ir.DataType.STRING) if computed.dtype == object else told.dtype.numpy() == computed.dtype
