"""float16 end to end: small graphs on which converters trip, networks, and branches in loops, compiled for gpu-fp16.

The small graphs and the networks go through cpu-bf16 too.
"""

import os
from collections import Counter
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from dovetail_runtime.data.batches import fitted
from dovetail_verify.metrics import DifferenceSums
from onnx import TensorProto, numpy_helper

from .nets import images, net

PRODUCTS = ("Conv", "GRU", "LSTM", "MatMul")
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NETWORKS = sorted(path.name for path in LIGHT.glob("*.onnx"))
SAMPLE = ["light_resnet50.onnx", "light_shufflenet.onnx", "light_squeezenet.onnx"]
SOLVERS = ("forward", "fixpoint", "min-cut")
FLAGS = {"c": np.array(True), "n": np.array(3)}
# file in `graphs`, opset, Casts at most
GRAPHS = [
    ("shared_initializer", 17, 4),
    ("cast_of_integers", 17, 3),
    ("mask", 17, 4),
    ("epsilon", 17, 3),
    ("resize", 17, 2),
    ("quantized", 17, 4),
    ("quantized", 19, 4),
    ("quantized", 23, 4),
    ("lstm", 17, 3),
    ("gru", 17, 2),
    ("branch", 17, 3),
    ("suppression", 17, 2),
    ("constant_of_shape", 17, 2),
    ("eye", 17, 4),
    ("output_read_inside", 17, 3),
    ("range", 17, 3),
    ("branch_and_loop", 17, 6),
]


def build(text, opset):
    """The model of a text; weights that are only declared get small random values."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    rng = np.random.default_rng(0)
    for value in list(model.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        model.graph.value_info.remove(value)
    return model


def inputs(model):
    """Random inputs; the whole numbers are small and the flags mixed."""
    rng = np.random.default_rng(1)
    known = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        shape = [dim.dim_value or 6 for dim in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        if value.name in FLAGS:
            feeds[value.name] = FLAGS[value.name]
        elif value.name not in known:
            random = {TensorProto.INT64: rng.integers(0, 9, shape), TensorProto.BOOL: rng.random(shape) < 0.7}
            feeds[value.name] = random.get(kind, rng.standard_normal(shape).astype(np.float32))
    return feeds


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def compiled(model, folder, backend="gpu-fp16", **request):
    """Compile a proto for gpu-fp16, check what was saved with onnx's checker; the result and the saved proto."""
    source = folder / "m.onnx"
    onnx.save(model, source)
    result = dovetail.compile(source, [backend], verify=False, **request)
    result.save(folder / "out")
    saved = folder / "out" / "model.onnx"
    onnx.checker.check_model(saved, full_check=True)
    return result, onnx.load(saved)


def snr(model, folder, feeds):
    """SNR of every float output of the saved result against the source, both whole in ONNX Runtime."""
    original, ours = session(folder / "m.onnx"), session(folder / "out" / "model.onnx")
    given = fitted(dovetail.open(folder / "out" / "model.onnx"), feeds)
    names = [output.name for output in original.get_outputs()]
    return compared(*(dict(zip(names, run.run(names, f))) for run, f in ((original, feeds), (ours, given))))


def compared(expected, arrays):
    """SNR of every float output; all others are equal."""
    found = {}
    for name, array in arrays.items():
        if array.dtype.kind in "biu":
            np.testing.assert_array_equal(array, expected[name])
        else:
            difference = DifferenceSums()
            difference.add(expected[name], array)
            found[name] = difference.snr_db
    return found


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)


def graph(name, opset):
    return build((Path(__file__).parent / "graphs" / f"{name}.txt").read_text(), opset)


def types_at_the_border(model):
    return {value.name: value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}


@pytest.mark.generated(one_of=12)
@pytest.mark.parametrize("keep_io_types", [True, False], ids=["kept io", "low io"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "opset", "casts"), GRAPHS)
def test_graphs(tmp_path, name, opset, casts, solver, keep_io_types):
    """Valid, with no more Casts than stated, weights of products in float16, and near to float32."""
    model = graph(name, opset)
    result, saved = compiled(model, tmp_path, solver=solver, keep_io_types=keep_io_types)
    nodes = list(nodes_of(saved.graph))
    assert len({node.name for node in nodes}) == len(nodes)
    assert not keep_io_types or types_at_the_border(saved) == types_at_the_border(model)
    # Fixpoint looks at one node at a time, and may leave one Cast that only two together could save.
    assert sum(node.op_type == "Cast" for node in nodes) <= casts + (solver == "fixpoint")
    assert all(decibels >= 40 for decibels in snr(model, tmp_path, inputs(model)).values())
    planned = {str(node.precision) for node in result.plan.nodes if node.op_type in PRODUCTS}
    assert planned == {"float16"}
    types = {tensor.name: tensor.data_type for tensor in saved.graph.initializer}
    weights = [node.input[1] for node in nodes if node.op_type in PRODUCTS and node.input[1] in types]
    assert weights
    assert {types[weight] for weight in weights} <= {TensorProto.FLOAT16}


@pytest.mark.generated(one_of=12)
@pytest.mark.parametrize("keep_io_types", [True, False], ids=["kept io", "low io"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "opset"), [(name, opset) for name, opset, _ in GRAPHS])
def test_graphs_in_bfloat16(tmp_path, name, opset, solver, keep_io_types):
    model = graph(name, opset)
    result, saved = compiled(model, tmp_path, "cpu-bf16", solver=solver, keep_io_types=keep_io_types)
    nodes = list(nodes_of(saved.graph))
    assert len({node.name for node in nodes}) == len(nodes)
    assert not keep_io_types or types_at_the_border(saved) == types_at_the_border(model)
    placed = [node for node in result.plan.nodes if node.op_type in PRODUCTS and node.backend == "cpu-bf16"]
    assert {str(node.precision) for node in placed} == {"bfloat16"}
    feeds, original = inputs(model), session(tmp_path / "m.onnx")
    names = [output.name for output in original.get_outputs()]
    expected = dict(zip(names, original.run(names, feeds)))
    assert all(decibels >= 25 for decibels in compared(expected, result.run(fitted(result.model, feeds))).values())


def whys(result, node_of):
    """The reasons at the node that computes a value."""
    name = next(node.name for node in result.plan.nodes if node.output == node_of)
    return [remark.why for remark in result.remarks if remark.node == name]


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("b = Min (a, k)", "computed in float32: its constant 'k' reaches 1e+05, beyond the 65504 of float16"),
        ("b = Add (a, e)", "computed in float32: its constant 'e' is at most 1e-12, which rounds to zero in float16"),
        ("b = Clip (a, m)", "computed in float32: its constant 'm' reaches 1e+30, beyond the 65504 of float16"),
        ("b = GridSample (g, p)", "computed in float32: its policy is fp32"),
    ],
)
def test_a_constant_that_float16_does_not_hold_keeps_its_node_high(tmp_path, node, said):
    text = f"""g (float[2,8] x) => (float[2,8] y)
    <float[8,8] w, float k = {{100000}}, float e = {{1e-12}}, float m = {{-1e30}}> {{
      a = MatMul (x, w)
      {node}
      y = MatMul (b, w)
    }}"""
    if "GridSample" in node:
        text = """g (float[1,3,4,4] x, float[1,4,4,2] p) => (float[1,3,4,4] y) <float[3,3,1,1] w> {
          g = Conv (x, w)
          b = GridSample (g, p)
          y = Conv (b, w)
        }"""
    model = build(text, 17)
    result, _ = compiled(model, tmp_path)
    assert said in whys(result, "b")
    assert min(snr(model, tmp_path, inputs(model)).values()) > 40


@pytest.mark.parametrize(
    ("node", "stored"), [("b = Where (c, a, m)", -32752), ("b = Clip (a, m)", -65504), ("b = Max (a, m)", -65504)]
)
def test_the_end_of_float32_becomes_the_end_of_float16(tmp_path, node, stored):
    """As a bound; as a mask half of it, so that a score can be added to it."""
    flags = "bool[2,8] c, " if "Where" in node else ""
    text = f"""g ({flags}float[2,8] x) => (float[2,8] y) <float[8,8] w, float m = {{-3.4028234663852886e38}}> {{
      a = MatMul (x, w)  {node}  s = Softmax (b)  y = MatMul (s, w) }}"""
    model = build(text, 17)
    result, saved = compiled(model, tmp_path)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in saved.graph.initializer}
    assert (arrays["m"].dtype, arrays["m"]) == (np.float16, stored)
    feeds = {"x": np.ones((2, 8), np.float32)} | ({"c": np.zeros((2, 8), bool)} if flags else {})
    assert snr(model, tmp_path, feeds)["y"] > 40


@pytest.mark.parametrize("solver", ["fixpoint", "min-cut"])
def test_what_a_loop_carries_goes_low_as_a_whole(tmp_path, solver):
    text = """g (float[4,8] x, int64 n) => (float[4,8] y) <float[8,8] w, bool yes = {1}> {
      a = MatMul (x, w)
      b, steps = Loop (n, yes, a) <
        body = body (int64 k, bool go, float[4,8] h) => (bool on, float[4,8] next, float[4,8] seen) {
          on = Identity (go)  m = MatMul (h, w)  next = Tanh (m)  seen = Neg (next)
        }>
      s = ReduceMax <keepdims = 0> (steps)  d = Mul (b, s)  y = MatMul (d, w) }"""
    model = build(text, 17)
    _, saved = compiled(model, tmp_path, solver=solver)
    assert sum(node.op_type == "Cast" for node in nodes_of(saved.graph)) == 2
    (loop,) = (node for node in saved.graph.node if node.op_type == "Loop")
    body = next(attribute.g for attribute in loop.attribute if attribute.name == "body")
    types = [value.type.tensor_type.elem_type for value in (*body.input, *body.output)]
    half, flag = TensorProto.FLOAT16, TensorProto.BOOL
    assert types == [TensorProto.INT64, flag, half, flag, half, half]
    assert snr(model, tmp_path, inputs(model))["y"] > 40


def test_a_scan_goes_low_as_a_whole(tmp_path):
    text = """g (float[5,8] x, float[8] s) => (float[8] last, float[5,8] y) <float[8,8] w> {
      a = MatMul (x, w)
      last, all = Scan <num_scan_inputs = 1, body = body (float[8] h, float[8] row) => (float[8] next, float[8] seen) {
          m = Mul (h, row)  next = Tanh (m)  seen = MatMul (next, w) }> (s, a)
      y = MatMul (all, w) }"""
    model = build(text, 17)
    _, saved = compiled(model, tmp_path, solver="min-cut")
    assert sum(node.op_type == "Cast" for node in nodes_of(saved.graph)) == 4
    assert min(snr(model, tmp_path, inputs(model)).values()) > 40


def test_lean_policies_take_fewer_casts(tmp_path):
    text = """g (float[4,8] x) => (float[4,8] y) <float[8,8] w, float two = {2}> {
      a = MatMul (x, w)  p = Pow (a, two)  m = ReduceMean (p)  s = Sqrt (m)  r = Reciprocal (s)
      n = Mul (a, r)  y = MatMul (n, w) }"""
    model = build(text, 17)
    casts, data = {}, inputs(model)
    for backend in ("gpu-fp16", "gpu-fp16:policies=lean"):
        _, saved = compiled(model, tmp_path, backend, solver="min-cut", data=data)
        casts[backend] = sum(node.op_type == "Cast" for node in saved.graph.node)
        assert snr(model, tmp_path, inputs(model))["y"] > 40
    assert casts == {"gpu-fp16": 4, "gpu-fp16:policies=lean": 2}


def test_large_weights_are_clamped_and_counted(tmp_path):
    model = build("g (float[1,300] x) => (float[1,300] y) <float[300,300] w> { y = MatMul (x, w) }", 17)
    array = numpy_helper.to_array(model.graph.initializer[0]).copy()
    array[0, :3], array[1, :2] = (1e6, -1e6, 7e4), 1e-9
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    result, saved = compiled(model, tmp_path)
    low = numpy_helper.to_array(saved.graph.initializer[0])
    np.testing.assert_array_equal(low[0, :3], np.array([65504, -65504, 65504], np.float16))
    assert [r.why for r in result.remarks if r.rule == "losses"] == [
        "weight 'w' in float16: 3 clamped to the range, 2 became zero"
    ]


def test_what_is_float64_stays_so(tmp_path):
    text = """g (float[2,8] x, double[2,8] d) => (float[2,8] y, double[2,8] e) <float[8,8] w, double two = {2}> {
      y = MatMul (x, w)
      f = Mul (d, two)
      e = Floor (f)
    }"""
    model = build(text, 17)
    _, saved = compiled(model, tmp_path)
    assert [node.op_type for node in saved.graph.node if node.op_type == "Cast"] == ["Cast"] * 2
    feeds = inputs(model) | {"d": np.linspace(-1, 1e100, 16).reshape(2, 8)}
    assert snr(model, tmp_path, feeds)["e"] == np.inf


def test_names_that_are_there_twice_and_nodes_out_of_order(tmp_path):
    text = """g (float[2,8] x, bool c) => (float[2,8] y) <float[8,8] w> {
      [n] y = MatMul (i, w)
      [n] i = If (c) <
        then_branch = t () => (float[2,8] p) { [n] p = Neg (q)  q = Abs (h) },
        else_branch = e () => (float[2,8] p2) { p2 = Identity (a) }
      >
      [n] h = Relu (a)
      a = MatMul (x, w)
    }"""
    model = build(text, 17)
    result, saved = compiled(model, tmp_path)
    assert Counter(node.op_type for node in saved.graph.node) == {"MatMul": 2, "Relu": 1, "If": 1, "Cast": 3}
    assert any(remark.rule == "sort" for remark in result.remarks)
    assert session(tmp_path / "out" / "model.onnx").run(None, inputs(model))[0].shape == (2, 8)


def test_group_normalization_does_not_end_the_region(tmp_path):
    """onnx infers no type behind it."""
    text = """g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4,4,1,1] w, float[4] s, float[4] b> {
      a = Conv (x, w)
      n = GroupNormalization <num_groups = 2> (a, s, b)
      y = Conv (n, w)
    }"""
    model = build(text, 21)
    result, _ = compiled(model, tmp_path)
    assert {node.backend for node in result.plan.nodes} == {"gpu-fp16"}
    assert snr(model, tmp_path, inputs(model))["y"] > 40


@pytest.mark.generated
@pytest.mark.parametrize("keep_io_types", [True, False], ids=["kept io", "low io"])
@pytest.mark.parametrize("name", NETWORKS if os.environ.get("DOVETAIL_SLOW") == "1" else SAMPLE)
def test_light_networks(tmp_path, name, keep_io_types):
    """Networks of opset 9 and IR 3 with weights that are computed, as onnx brings them along."""
    assert len(NETWORKS) == 9
    model = onnx.load(LIGHT / name)
    result, saved = compiled(model, tmp_path, keep_io_types=keep_io_types)
    assert {str(node.precision) for node in result.plan.nodes if node.op_type in PRODUCTS} == {"float16"}
    # Weights are filled in at run time there, in float32; LRN stays in float32, and a pool behind it.
    kinds = Counter(node.op_type for node in saved.graph.node)
    assert kinds["Cast"] <= 2 + kinds["ConstantOfShape"] + 3 * kinds["LRN"]
    feeds = {value.name: array for value, array in zip(saved.graph.input, [image()])}
    assert min(snr(model, tmp_path, feeds).values()) > 40


def image():
    return np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)


@pytest.mark.parametrize("solver", ["forward", "fixpoint", "min-cut"])
def test_angles_made_from_positions_stay_in_float32(tmp_path, solver):
    """Rotary embeddings: at position 3001, which float16 does not have, the sine is still right."""
    text = """g (int64[1,4] positions, float[4,8] x) => (float[4,8] y)
    <float[8,8] w, float[1] rate = {0.7}, int64[2] turned = {4, 1}> {
      p = Cast <to = 1> (positions)  t = Reshape (p, turned)  a = MatMul (t, r)  s = Sin (a)
      h = MatMul (x, w)  m = Mul (h, s)  y = MatMul (m, w) }"""
    model = build(text.replace("float[1] rate = {0.7}", "float[1,8] r"), 17)
    result, _ = compiled(model, tmp_path, solver=solver)
    assert {node.output: str(node.precision) for node in result.plan.nodes if node.output in "ptas"} == dict.fromkeys(
        "ptas", "float32"
    )
    feeds = inputs(model) | {"positions": np.array([[1, 1000, 3001, 30001]])}
    assert snr(model, tmp_path, feeds)["y"] > 55
    assert "is too coarse for an angle computed from positions" in whys(result, "a")[0]


def test_a_sine_of_activations_is_no_angle(tmp_path):
    model = build(
        "g (float[2,8] x) => (float[2,8] y) <float[8,8] w> { a = MatMul (x, w) s = Sin (a) y = MatMul (s, w) }", 17
    )
    result, _ = compiled(model, tmp_path)
    assert {str(node.precision) for node in result.plan.nodes} == {"float16"}


def test_a_convolution_before_a_recurrent_layer(weighted):
    """ONNX Runtime's layouts of convolutions end the process where every result in front of the layer is rounded."""
    text = """g (float[2,8,200] x) => (float[2,98,30] y)
      <float[32,8,5] k, float[32] kb, float[1,144,32] w, float[1,144,48] r, float[48,30] o, int64[1] one = {1}> {
        c = Conv <strides = [2]> (x, k, kb)  a = Relu (c)  t = Transpose <perm = [2, 0, 1]> (a)
        h, last = GRU <hidden_size = 48, linear_before_reset = 1> (t, w, r)
        s = Squeeze (h, one)  b = Transpose <perm = [1, 0, 2]> (s)
        m = MatMul (b, o)  y = LogSoftmax <axis = -1> (m) }"""
    result = dovetail.compile(weighted(text), ["gpu-fp16"], verify=True)
    assert {str(node.precision) for node in result.plan.nodes if node.op_type in ("Conv", "GRU")} == {"float16"}
    assert result.verification.worst_snr_db > 45


@pytest.mark.generated
@pytest.mark.parametrize("operator", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scattered_updates_are_reduced(weighted, operator, reduction):
    """Some of ONNX Runtime's kernels take float16 and fail when they run."""
    second = 1 if reduction == "none" else 2  # without a reduction, which update wins is open
    rows = [2, second] if operator == "ScatterND" else [2] * 8 + [second] * 8
    indices = f"int64[2,{len(rows) // 2}] i = {{{', '.join(map(str, rows))}}}"
    text = f"""g (float[4,8] x, float[2,8] u) => (float[4,8] y, float[4,8] s) <float[8,8] w, {indices}> {{
      a = MatMul (x, w)  b = MatMul (u, w)
      s = {operator} <reduction = "{reduction}"> (a, i, b)  y = MatMul (s, w) }}"""
    for keep in (True, False):
        request = {"solver": "fixpoint", "keep_io_types": keep}
        result = dovetail.compile(weighted(text, 18), ["gpu-fp16"], verify=True, **request)
        assert {str(node.precision) for node in result.plan.nodes} == {"float16"}
        assert result.verification.worst_snr_db > 50


@pytest.mark.parametrize("solver", SOLVERS)
def test_layer_norms_in_single_operators_load_on_onnx_runtime_alone(solver, tmp_path):
    # ONNX Runtime fuses them, and refuses what it made if data and scale have two types.
    dovetail.compile(net("vit"), "gpu-fp16", solver=solver).save(tmp_path / "out")
    (picture,) = images(1)
    exact, result = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, picture)[0]
        for model in (net("vit").SerializeToString(), str(tmp_path / "out" / "model.onnx"))
    )
    np.testing.assert_allclose(result, exact, atol=0.02 * np.abs(exact).max())
