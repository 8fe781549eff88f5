"""Nets with heads and tails that no int8 kernel computes, for `ppl-int8`: nobody has to cut them by hand."""

import json
from collections import Counter

import dovetail
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from dovetail.cli.main import main
from dovetail.planning import get_placement
from onnx import numpy_helper

BODY = """
  [first] a1 = Conv <pads = [1,1,1,1], strides = [2,2]> (image, w1, b1)
  [relu1] r1 = Relu (a1)
  [second] a2 = Conv <pads = [1,1,1,1]> (r1, w2, b2)
  [relu2] r2 = Clip (a2, zero, six)
  [third] a3 = Conv <pads = [1,1,1,1]> (r2, w3, b3)
  [add] s = Add (a3, r1)
  [relu3] r3 = Relu (s)
  [last] features = Conv (r3, w4, b4)
"""
WEIGHTS = """<float[8,3,3,3] w1, float[8] b1, float[8,8,3,3] w2, float[8] b2, float[8,8,3,3] w3, float[8] b3,
  float[6,8,1,1] w4, float[6] b4, float zero = {0}, float six = {6}"""
IN_BODY = {"first", "relu1", "second", "relu2", "third", "add", "relu3", "last"}

NMS = f"""(float[1,3,32,32] image) => (int64[found, 3] chosen) {WEIGHTS}, float[1,256,4] anchors,
  int64[3] rows = {{1, -1, 6}}, int64 most = {{10}}, float overlap = {{0.5}}, float least = {{0.0}},
  int64[1] four = {{4}}, int64[1] none = {{0}}, int64[1] end = {{6}}, int64[1] last_axis = {{2}}> {{{BODY}
  [tail_rows] flat = Transpose <perm = [0,2,3,1]> (features)
  [tail_shape] table = Reshape (flat, rows)
  [boxes] moved = Slice (table, none, four, last_axis)
  [boxes_at] box = Add (moved, anchors)
  [classes] logits = Slice (table, four, end, last_axis)
  [score] scores = Sigmoid (logits)
  [by_class] turned = Transpose <perm = [0,2,1]> (scores)
  [select] chosen = NonMaxSuppression (box, turned, most, overlap, least)
}}"""

TOPK = f"""(float[1,3,32,32] image) => (float[1,5] best, int64[1,5] where) {WEIGHTS}, int64[1] five = {{5}},
  int64[2] rows = {{1, -1}}> {{{BODY}
  [flat] row = Reshape (features, rows)
  [top] best, where = TopK (row, five)
}}"""

RESIZE = f"""(float[1,3,H,W] image) => (float[1,6,H,W] mask) {WEIGHTS}, int64[1] spatial = {{2}}, int64[1] end = {{4}},
  int64[1] none = {{0}}, int64[2] channels = {{1, 8}}, float[6,8,3,3] w5, float[6] b5> {{
  [size] shape = Shape (image)
  [height] hw = Slice (shape, spatial, end, none)
  [sizes] whole = Concat <axis = 0> (channels, hw)
  [first] a1 = Conv <pads = [1,1,1,1], strides = [2,2]> (image, w1, b1)
  [relu1] r1 = Relu (a1)
  [second] a2 = Conv <pads = [1,1,1,1]> (r1, w2, b2)
  [relu2] r2 = Relu (a2)
  [up] u = Resize <mode = "nearest"> (r2, , , whole)
  [third] mask = Conv <pads = [1,1,1,1]> (u, w5, b5)
}}"""

ATTENTION = f"""(float[1,3,16,16] image) => (float[1,64,6] y) {WEIGHTS}, int64[3] rows = {{1, 6, 64}}, float[6,6] query,
  float[6,6] key, float[6,6] value, float root = {{2.45}}, float[6] gain, float[6] bias> {{{BODY}
  [flat] f = Reshape (features, rows)
  [tokens] t = Transpose <perm = [0,2,1]> (f)
  [norm] n = LayerNormalization (t, gain, bias)
  [q] q1 = MatMul (n, query)
  [k] k1 = MatMul (n, key)
  [kt] k2 = Transpose <perm = [0,2,1]> (k1)
  [v] v1 = MatMul (n, value)
  [product] p = MatMul (q1, k2)
  [scaled] d = Div (p, root)
  [weights] g = Softmax <axis = -1> (d)
  [attended] y = MatMul (g, v1)
}}"""

LSTM = f"""(float[1,3,16,16] image) => (float[8,1,1,5] y) {WEIGHTS}, int64[3] rows = {{8, 1, 48}}, float[1,20,48] w,
  float[1,20,5] r, float[1,40] b> {{{BODY}
  [steps] t = Transpose <perm = [2,0,1,3]> (features)
  [sequence] x = Reshape (t, rows)
  [recurrent] y = LSTM <hidden_size = 5> (x, w, r, b)
}}"""

NETS = {"nms": NMS, "topk": TOPK, "resize": RESIZE, "attention": ATTENTION, "lstm": LSTM}


def write(folder, graph, samples=8):
    """Write a graph as `net.onnx`, with random weights; return its path and images for it."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> net {graph}')
    rng = np.random.default_rng(0)
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        spread = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        array = (rng.standard_normal(shape) * spread).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    path = folder / "net.onnx"
    onnx.save(proto, path)
    extents = [dim.dim_value or 32 for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    return path, [{"image": rng.standard_normal(extents).astype(np.float32)} for _ in range(samples)]


@pytest.fixture(scope="module", params=NETS)
def compiled(request, tmp_path_factory):
    """The name of a net, its file, images, and the result, which is also saved in `out` beside the file."""
    folder = tmp_path_factory.mktemp(request.param)
    path, images = write(folder, NETS[request.param])
    result = dovetail.compile(path, "ppl-int8", data=images)
    result.save(folder / "out")
    return request.param, path, images, result


def snr(exact, found):
    """In decibels."""
    exact, found = (np.asarray(array, np.float64) for array in (exact, found))
    return 10 * np.log10((exact**2).sum() / ((exact - found) ** 2).sum())


@pytest.mark.generated(one_of=2)
def test_the_result_is_near_the_original(compiled):
    _, path, images, result = compiled
    original = dovetail.compile(path, "host")
    for image in images[:2]:
        exact, found = original.run(image), result.run(image)
        for output, array in exact.items():
            if array.dtype == np.float32:
                assert snr(array, found[output]) > 25
            else:  # boxes by class, or positions
                same = set(map(tuple, array.reshape(-1, array.shape[-1])))
                assert output == "where" or len(same & set(map(tuple, found[output]))) >= 0.6 * len(same)


def test_what_lies_between_convolutions_is_in_int8_and_nothing_else(compiled):
    name, _, _, result = compiled
    expected = {"first", "relu1", "second", "relu2", "up", "third"} if name == "resize" else IN_BODY
    assert {node.name for node in result.plan.nodes if node.backend == "ppl-int8"} == expected


def test_shape_arithmetic_stays_as_it_is(compiled):
    _, _, _, result = compiled
    for node in result.model.graph:
        if node.op_type in ("Shape", "Concat", "Slice") and node.inputs[0].dtype.name == "INT64":
            assert node.outputs[0].dtype.name == "INT64"
            assert {reader.op_type for reader, _ in node.outputs[0].uses()} <= {"Slice", "Concat", "Resize"}


def test_conversions_stand_at_the_border_and_nowhere_around_floats(compiled):
    _, _, _, result = compiled
    backend = {node.name: get_placement(node).backend for node in result.model.graph}
    conversions = ("QuantizeLinear", "DequantizeLinear")
    entering = leaving = 0
    for node in result.model.graph:
        value = node.inputs[0] if node.inputs else None
        if node.op_type == "QuantizeLinear":
            producer = value.producer()
            entering += producer is None or backend[producer.name] == "host"
        elif node.op_type == "DequantizeLinear" and value.const_value is None:
            readers = [reader for reader, _ in node.outputs[0].uses()]
            leaving += not readers or any(backend[reader.name] == "host" for reader in readers)
            assert not any(reader.op_type in conversions for reader in readers), "nothing is quantized twice"
    assert (entering, leaving) == (1, 1)


def test_onnx_runtime_computes_the_body_in_integers(compiled):
    name, path, images, _ = compiled
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.log_severity_level = True, 3
    options.profile_file_prefix = str(path.with_name("profile"))
    session = onnxruntime.InferenceSession(path.with_name("out") / "model.onnx", options)
    session.run(None, images[0])
    with open(session.end_profiling()) as file:
        events = json.load(file)
    ran = Counter(event["args"]["op_name"] for event in events if event["name"].endswith("_kernel_time"))
    products = 3 if name == "resize" else 4
    assert ran["QLinearConv"] == products
    assert not {"Conv", "FusedConv", "Relu"} & set(ran)
    # The others are part of kernels. ONNX Runtime moves the last one behind a Slice, of which the detector has two.
    assert ran["QuantizeLinear"] == 1 and ran["DequantizeLinear"] == 1 + (name == "nms")


@pytest.mark.generated(one_of=2)
def test_ppl_gets_the_whole_model_in_float32_and_a_file_about_it(compiled):
    _, path, images, result = compiled
    folder = path.with_name("out") / "artifacts" / "ppl-int8" / "model"
    proto, document = onnx.load(folder / "model.onnx"), json.loads((folder / "ppl.json").read_text())
    onnx.checker.check_model(proto, full_check=True)
    assert [(one.domain, one.version) for one in proto.opset_import] == [("", 13)]
    assert set(document["op_info"]) == {node.name for node in result.plan.nodes if node.backend == "ppl-int8"}
    values = {value for node in proto.graph.node for value in (*node.input, *node.output)}
    assert set(document["quant_info"]) <= values
    original, given = ({tensor.name: numpy_helper.to_array(tensor) for tensor in each.graph.initializer}
                       for each in (onnx.load(path), proto))  # fmt: skip
    kernels = [weight for weight, array in given.items() if array.ndim == 4]
    assert kernels and all(np.array_equal(original[weight], given[weight]) for weight in kernels)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    found = dict(zip([output.name for output in session.get_outputs()], session.run(None, images[0])))
    for output, array in dovetail.compile(path, "host").run(images[0]).items():
        if array.dtype == np.float32:
            assert snr(array, found[output]) > 30, "nothing but biases has changed"


@pytest.mark.generated(one_of=2)
def test_a_replay_needs_no_data(compiled, tmp_path):
    _, path, images, result = compiled
    again = dovetail.compile(path, "ppl-int8", plan=path.with_name("out") / "plan.yaml")
    first, second = result.run(images[0]), again.run(images[0])
    assert all(np.array_equal(first[output], second[output]) for output in first)


def test_a_model_that_ppl_may_not_read_comes_with_a_remark(tmp_path, capsys):
    """PPL reads the whole model, and no opset that it reads has a GridSample."""
    graph = NETS["topk"].replace("int64[1] five", "float[1,16,16,2] grid, int64[1] five")
    graph = graph.replace("(features, rows)", "(sampled, rows)")
    graph = graph.replace("[flat]", "[grid_sample] sampled = GridSample (features, grid)\n  [flat]")
    path, images = write(tmp_path, graph)
    np.savez(tmp_path / "data.npz", **images[0])
    out = tmp_path / "out"
    assert (
        main(["compile", str(path), "--backend", "ppl-int8", "--data", str(tmp_path / "data.npz"), "-o", str(out)]) == 0
    )
    given = onnx.load(out / "artifacts" / "ppl-int8" / "model" / "model.onnx")
    assert [one.version for one in given.opset_import] == [17]
    capsys.readouterr()
    assert main(["explain", str(out), "first"]) == 0
    said = capsys.readouterr().out
    assert "ppl-int8, uint8[symmetric]" in said
    assert "PPL reads opset 13 at the highest, and model.onnx has opset 17" in said and "'grid_sample'" in said
