"""Patterns that OpenVINO 2026.4 computes wrongly by itself: repaired by the engine, or left to host by the backend."""

from __future__ import annotations

import dovetail
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Model
from dovetail.plugin import RegionModel
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from onnx import TensorProto, helper

from .models import parse

RNG = np.random.default_rng(0)


def numbers(*shape):
    return ", ".join(f"{number:.2f}" for number in np.random.default_rng(1).standard_normal(shape).ravel())


REPAIRED = {
    "infinite results of another operator": (
        "g (float[N,4] x) => (bool[N,4] any) <float zero = {0}> { m = Mul(x, zero) y = Div(x, m) any = IsInf(y) }",
        {"x": (3, 4)},
    ),
    "positive infinite results of another operator": (
        "g (float[N,4] x) => (bool[N,4] high) <float zero = {0}> {"
        " m = Mul(x, zero) s = Abs(m) y = Div(x, s) high = IsInf<detect_negative = 0>(y) }",
        {"x": (3, 4)},
    ),
    "the largest number of a row that is -inf throughout, compared": (
        "g (float[N,4] x) => (bool[N,4] hidden) <float zero = {0}, float minus = {-1}, int64[1] last = {1}> {"
        " m = Mul(x, zero) s = Abs(m) y = Div(minus, s) r = ReduceMax(y, last) hidden = Equal(y, r) }",
        {"x": (3, 4)},
    ),
    "the smallest number of a row that is inf throughout, compared without its axis": (
        "g (float[N,4,2] x) => (bool[N,2] any) <float zero = {0}, int64[1] axis = {1}> {"
        " m = Mul(x, zero) s = Abs(m) one = Exp(s) y = Div(one, s) r = ReduceMin<keepdims = 0>(y, axis)"
        " any = IsInf(r) }",
        {"x": (3, 4, 2)},
    ),
    "the magnitude of a maximum pool behind a convolution": (
        f"g (float[1,2,6,6] x) => (float[1,2,6,6] y) <float[2,2,3,3] w = {{{numbers(2, 2, 3, 3)}}}> {{"
        " a = Conv<pads = [1,1,1,1]>(x, w) p = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(a) y = Abs(p) }",
        {"x": (1, 2, 6, 6)},
    ),
    "an activation that falls before it rises, of a maximum pool behind a convolution": (
        f"g (float[1,2,6,6] x) => (float[1,2,6,6] y) <float[2,2,3,3] w = {{{numbers(2, 2, 3, 3)}}}> {{"
        " a = Conv<pads = [1,1,1,1]>(x, w) p = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(a) y = HardSwish(p) }",
        {"x": (1, 2, 6, 6)},
    ),
    "the magnitude of a maximum pool behind a convolution, quantized": (
        f"g (float[1,2,6,6] x) => (int8[1,2,6,6] y) <float[2,2,3,3] w = {{{numbers(2, 2, 3, 3)}}}, float s = {{0.05}},"
        " int8 z = {0}> { a = Conv<pads = [1,1,1,1]>(x, w)"
        " p = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(a) m = Abs(p) y = QuantizeLinear(m, s, z) }",
        {"x": (1, 2, 6, 6)},
    ),
    "a shift per channel in front of a quantization": (
        "g (float[N,2,2,3] x) => (uint8[N,2,2,3] y) <float[2,1,1] k = {1.4, 0.9}, float[2,1,1] c = {0.3, -0.4},"
        " float s = {0.03}, uint8 z = {128}> { m = Mul(x, k) a = Add(m, c) y = QuantizeLinear(a, s, z) }",
        {"x": (1, 2, 2, 3)},
    ),
    "a shift per channel and a Relu in front of a quantization": (
        f"g (float[N,8,3,5] x) => (float[N,8,3,5] y) <float[1,8,1,1] k = {{{numbers(8)}}},"
        f" float[1,8,1,1] c = {{{numbers(8)}}}, float s = {{0.01}}, uint8 z = {{0}}> {{"
        " m = Mul(x, k) a = Add(m, c) r = Relu(a) q = QuantizeLinear(r, s, z) y = DequantizeLinear(q, s, z) }",
        {"x": (1, 8, 3, 5)},
    ),
    "a reduction of the last axis, then a factor per row": (
        f"g (float[N,3,4] x) => (float[A,3] y) <int64[1] last = {{2}}, float[3] c = {{{numbers(3)}}}> {{"
        " r = ReduceSum<keepdims = 0>(x, last) y = Mul(r, c) }",
        {"x": (75, 3, 4)},
    ),
    "a reduction of the first axis, then a factor per row": (
        f"g (float[3,4,5] x) => (float[4,5] y) <int64[1] first = {{0}}, float[4,1] c = {{{numbers(4)}}}> {{"
        " r = ReduceMax<keepdims = 0>(x, first) y = Add(r, c) }",
        {"x": (3, 4, 5)},
    ),
    "a reduction of the first axis, which stays, then slopes per row": (
        f"g (float[3,5,6] x) => (float[1,5,6] y) <int64[1] first = {{0}}, float[5,1] c = {{{numbers(5)}}}> {{"
        " r = ReduceMax(x, first) y = PRelu(r, c) }",
        {"x": (3, 5, 6)},
    ),
    "a reduction of the first axis, which stays, then slopes per row in bfloat16": (
        f"g (float[3,5,6] x) => (float[1,5,6] y) <int64[1] first = {{0}}, float[5,1] c = {{{numbers(5)}}}> {{"
        " r = ReduceMax(x, first) n = Cast<to = 16>(r) s = Cast<to = 16>(c) p = PRelu(n, s) y = Cast<to = 1>(p) }",
        {"x": (3, 5, 6)},
    ),
    "a reduction of the last axis, which stays, then a factor per row": (
        f"g (float[3,5,6] x) => (float[3,5,1] y) <int64[1] last = {{2}}, float[5,1] c = {{{numbers(5)}}}> {{"
        " r = ReduceMean(x, last) y = Mul(c, r) }",
        {"x": (3, 5, 6)},
    ),
    "two recurrent operators that read one value": (
        f"""g (float[3,2,6] x) => (float[3,1,2,4] y, float[3,1,2,4] z) <
            float[1,4,6] w = {{{numbers(24)}}}, float[1,4,4] r = {{{numbers(16)}}},
            float[1,12,6] w3 = {{{numbers(72)}}}, float[1,12,4] r3 = {{{numbers(48)}}}> {{
            y = RNN<hidden_size = 4>(x, w, r) z = GRU<hidden_size = 4>(x, w3, r3) }}""",
        {"x": (3, 2, 6)},
    ),
    "a recurrent operator and a Transpose that read one value": (
        f"""g (float[3,2,6] x) => (float[3,1,2,4] y, float[2,3,6] z) <
            float[1,4,6] w = {{{numbers(24)}}}, float[1,4,4] r = {{{numbers(16)}}}> {{
            y = RNN<hidden_size = 4>(x, w, r) t = Transpose<perm = [1,0,2]>(x) z = Neg(t) }}""",
        {"x": (3, 2, 6)},
    ),
    "slopes along the last axis of a cube": (
        "g (float[3,3,3] x) => (float[3,3,3] y) <float[3] slope = {0.1, 0.2, 0.3}> { y = PRelu(x, slope) }",
        {"x": (3, 3, 3)},
    ),
    "slopes that a normalization computes": (
        """g (float[N,3,6] x, float[N,3,6] v) => (float[A,3,6] y) <float[6] s = {1, 2, 3, 1, 2, 3}> {
            slope = LayerNormalization(x, s, s) y = PRelu(v, slope) }""",
        {"x": (2, 3, 6), "v": (2, 3, 6)},
    ),
    "padding behind quantization": (
        """g (float[2,1,6] x) => (float[3,1,6] y) <
            float s = {0.02}, uint8 z = {128}, int64[6] pads = {1, 0, 0, 0, 0, 0}, float half = {0.5}> {
            q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Pad(d, pads, half) }""",
        {"x": (2, 1, 6)},
    ),
    "quantization behind a pooling": (
        """g (float[3,4,7,8] x) => (float[3,4,1,1] y) <float s = {0.02}, uint8 z = {128}> {
            p = GlobalMaxPool(x) q = QuantizeLinear(p, s, z) y = DequantizeLinear(q, s, z) }""",
        {"x": (3, 4, 7, 8)},
    ),
    "a convolution with dequantized filters of one element behind a Transpose": (
        """g (float[4,3,7,2] x) => (float[7,3,4,2] y) <
            float s = {0.01}, int8 z = {0}, int8[3,3,1,1] w = {-34, -46, -21, 3, 4, 5, 6, 7, 8}> {
            t = Transpose<perm = [2,1,0,3]>(x) f = DequantizeLinear(w, s, z) y = Conv(t, f) }""",
        {"x": (4, 3, 7, 2)},
    ),
}


# One channel, a stride along the last axis, and one position there.
for label, extent, attributes in (
    ("as wide as the filters", "3", "strides = [1,2]"),
    ("that the padding makes wider", "3", "strides = [1,3], pads = [0,1,0,1]"),
    ("padded to their extent", "3", 'strides = [1,3], auto_pad = "SAME_LOWER"'),
    ("of unknown width", "W", "strides = [1,2]"),
):
    REPAIRED[f"a strided convolution with one position, of data {label}"] = (
        f"""g (float[N,1,8,{extent}] x) => (float[A,2,B,C] y) <float[2,1,2,3] w = {{{numbers(12)}}}> {{
            y = Conv<{attributes}>(x, w) }}""",
        {"x": (12, 1, 8, 3)},
    )
for operator, attributes in (
    ("HardSigmoid", "alpha = 0.3, beta = 0.0"),
    ("HardSigmoid", "alpha = 0.0, beta = 0.3"),
    ("Selu", "alpha = 0.0, gamma = 2.0"),
):
    REPAIRED[f"{operator} with {attributes}"] = (
        f"g (float[2,8] x) => (float[2,8] y) {{ y = {operator}<{attributes}>(x) }}",
        {"x": (2, 8)},
    )
REPAIRED["boxes whose number of samples is left out"] = (
    """g (float[1,8,5,6] x) => (float[2,8,2,2] y) <
        float[2,4] boxes = {0, 0, 2, 2, 1, 0, 3, 3}, int64[2] images = {0, 0}> {
        y = RoiAlign<output_height = 2, output_width = 2>(x, boxes, images) }""",
    {"x": (1, 8, 5, 6)},
)
for bias, alpha, beta in ((1.5, 0.1, 0.75), (0.5, 0.0001, 1.0), (2.25, 0.1, 0.5)):
    REPAIRED[f"a normalization across channels with the bias {bias}"] = (
        f"""g (float[N,6,3,3] x) => (float[N,6,3,3] y) {{
            y = LRN<size = 3, alpha = {alpha}, beta = {beta}, bias = {bias}>(x) }}""",
        {"x": (2, 6, 3, 3)},
    )
REPAIRED["the sign of what a byte stands for"] = (
    """g (float[2,64] x) => (float[2,64] y) <float s = {0.05}, uint8 z = {120}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Sign(d) }""",
    {"x": (2, 64)},
)


def feeds_of(shapes):
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.generated
@pytest.mark.parametrize("name", REPAIRED)
def test_repaired(name):
    text, shapes = REPAIRED[name]
    model, feeds = parse(text), feeds_of(shapes)
    ours, right = (engine.load(RegionModel(model), {}).run(feeds) for engine in (OpenVinoCpu(), OnnxRuntimeCpu()))
    for output, expected in right.items():
        assert ours[output].shape == expected.shape
        # Quantized results may round to the other side of a half.
        np.testing.assert_allclose(
            ours[output], expected, rtol=1e-4, atol=0.021 if "quantis" in name or "bfloat16" in name else 1e-4
        )


@pytest.mark.parametrize("held", ["initializer", "node"])
@pytest.mark.parametrize("type_", ["BFLOAT16", "UINT32", "FLOAT16", "INT8"])
def test_constants_are_read_right_however_they_are_written(type_, held):
    """Lists of numbers in the file, rather than bytes."""
    tensor = helper.make_tensor("k", getattr(TensorProto, type_), [3], [1, 2, 3])
    assert not tensor.HasField("raw_data")
    nodes = [helper.make_node("Cast", ["k"], ["c"], "cast", to=1), helper.make_node("Add", ["c", "x"], ["y"], "add")]
    if held == "node":
        nodes.insert(0, helper.make_node("Constant", [], ["k"], "constant", value=tensor))
    values = [helper.make_tensor_value_info(name, 1, [3]) for name in "xy"]
    constants = [tensor] if held == "initializer" else []
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = OpenVinoCpu().load(RegionModel(Model(ir.from_proto(model))), {})
    assert session.run({"x": np.zeros(3, np.float32)})["y"].tolist() == [1, 2, 3]


LEFT_TO_HOST = {
    "Resize": (
        """g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] scales = {1, 1.0078125, 2, 2}> {
            y = Resize (x, "", scales) }""",
        "resizes_channels",
    ),
    "TopK": (
        "g (float[2,9] x, int64[1] k) => (float[2,A] v, int64[2,B] y) { v, y = TopK(x, k) }",
        "indices_of_last_axis",
    ),
    "If": (
        """g (float[N,4] x, bool c) => (float[A,4] y) { y = If (c) <
            then_branch = t () => (float[N,4] p) { p = Neg(x) },
            else_branch = e () => (float[N,4] q) { q = Sin(x) }> }""",
        "dynamic_graph",
    ),
    "Compress": (
        "g (float[3,4] x) => (float[A,4] y) <bool[3] c = {0, 0, 0}> { y = Compress<axis = 0>(x, c) }",
        "condition.constant",
    ),
    "GlobalLpPool": ("g (float[N,3,4,5] x) => (float[N,3,1,1] y) { y = GlobalLpPool(x) }", "dynamic_extents"),
    "ReduceL2": (
        "g (float[2,3] x) => (float[2,3] y) { y = ReduceL2<noop_with_empty_axes = 1, keepdims = 0>(x) }",
        "noop_with_empty_axes = 1",
    ),
    "ReduceLogSum": (
        "g (float[2,3] x) => (float[2,3] y) <int64[0] a = {}> { y = ReduceLogSum<noop_with_empty_axes = 1>(x, a) }",
        "noop_with_empty_axes = 1",
    ),
    "GRU": (
        f"""g (float[T,2,3] x, int32[2] lengths) => (float[A,1,2,2] y) <
            float[1,6,3] w = {{{numbers(18)}}}, float[1,6,2] r = {{{numbers(12)}}}> {{
            y = GRU<hidden_size = 2>(x, w, r, "", lengths) }}""",
        "dynamic_extents",
    ),
    "QuantizeLinear": (
        """g (float[N,3] x) => (int8[N,3] y) <float[2] s = {0.04, 0.02}, int8[2] z = {0, 0}> {
            y = QuantizeLinear<axis = 0>(x, s, z) }""",
        "axis = 0",
    ),
    "ConvTranspose": (
        f"""g (float[N,1,H,W] x) => (float[N,2,A,B] y) <float[1,2,3,3] w = {{{numbers(18)}}}> {{
            y = ConvTranspose<strides = [2,2], output_shape = [8,8]>(x, w) }}""",
        "output_shape = [8, 8]",
    ),
    "Scan": (
        """g (float[2,3,2] x, float[3,2] start) => (float[3,2] y) { y, all = Scan<num_scan_inputs = 1,
            body = b (float[3,2] s, float[3,2] e) => (float[3,2] r, float[3,2] o) {
                r = Tanh(s) o = Mul(r, e) }>(start, x) }""",
        "refuses Scan|does not list Scan",
    ),
    "BitShift": (
        """g (float[4] x) => (float[4] y) <uint8 one = {1}> {
            i = Cast<to = 2>(x) s = BitShift<direction = "RIGHT">(i, one) y = Cast<to = 1>(s) }""",
        "refuses BitShift|does not list BitShift",
    ),
}  # fmt: skip


@pytest.mark.parametrize("op_type", LEFT_TO_HOST)
def test_left_to_host_with_a_reason(op_type, tmp_path):
    text, says = LEFT_TO_HOST[op_type]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {text}'), path)
    plan = dovetail.plan(path, ["cpu-bf16"])
    node = next(node for node in plan.nodes if node.op_type == op_type)
    assert node.backend == "host"
    whys = " ".join(remark.why for remark in plan.remarks if remark.node == node.name)
    assert any(part in whys for part in says.split("|")), whys


def test_equal_elements_come_in_the_order_of_their_indices(tmp_path):
    path = tmp_path / "model.onnx"
    text = "g (float[1,64] x) => (float[1,A] v, int64[1,B] i) <int64[1] k = {20}> { v, i = TopK(x, k) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {text}'), path)
    x = RNG.integers(0, 3, (1, 64)).astype(np.float32)
    found = dovetail.compile(path, ["cpu-bf16"], verify=False).run({"x": x})["i"][0]
    assert found.tolist() == sorted(range(64), key=lambda index: (-x[0, index], index))[:20]


@pytest.mark.parametrize(
    ("extent", "attributes", "expected"),
    [
        (5, "kernel_shape = [3,3], strides = [2,2]", "bfloat16"),
        (3, "kernel_shape = [3,3], strides = [2,2]", "float32"),
        (3, "kernel_shape = [3,3], strides = [1,1]", "bfloat16"),
        (5, "kernel_shape = [1,1], strides = [2,2]", "bfloat16"),
        (5, "kernel_shape = [1,1], strides = [2,2], pads = [1,1,1,1]", "host"),
    ],
)
def test_what_amx_computes_wrongly_is_left_out(extent, attributes, expected, tmp_path):
    """One column that is left by a stride, and padding around filters of one element."""
    path, size = tmp_path / "model.onnx", int(attributes[16])
    text = f"""g (float[2,3,8,{extent}] x) => (float[A,4,B,C] y) <
        float[4,3,{size},{size}] w = {{{numbers(4, 3, size, size)}}}> {{ y = Conv<{attributes}>(x, w) }}"""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {text}'), path)
    node = next(node for node in dovetail.plan(path, ["cpu-bf16"]).nodes if node.op_type == "Conv")
    assert expected in (node.backend, str(node.precision))


def test_channels_made_of_one_channel_stay_in_float32(tmp_path):
    """In bfloat16, and with a batch that is not known, OpenVINO adds another bias to them."""
    path = tmp_path / "model.onnx"
    text = f"""g (float[N,3,6] x) => (float[A,9,B] y) <
        float[9,1,2] w = {{{numbers(18)}}}, float[9] b = {{{numbers(9)}}}> {{ y = Conv<group = 3>(x, w, b) }}"""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {text}'), path)
    compiled = dovetail.compile(path, ["cpu-bf16"], verify=False)
    assert [str(node.precision) for node in compiled.plan.nodes if node.op_type == "Conv"] == ["float32"]
    x = RNG.standard_normal((2, 3, 6)).astype(np.float32)
    right = (
        OnnxRuntimeCpu().load(RegionModel(parse(f'<ir_version: 10, opset_import: ["": 22]> {text}')), {}).run({"x": x})
    )
    np.testing.assert_allclose(compiled.run({"x": x})["y"], right["y"], rtol=1e-4, atol=1e-4)


def test_a_branch_in_a_region_of_unknown_extents_is_refused_by_its_result():
    """ONNX knows the extents of the branch; those of its neighbors are enough to spoil it."""
    text = """g (float[N,4] z, float[3,4] x, bool c) => (float[3,4] y, float[A,4] w) { w = Neg(z) y = If (c) <
        then_branch = t () => (float[3,4] p) { p = Neg(x) }, else_branch = e () => (float[3,4] q) { q = Sin(x) }> }"""
    with pytest.raises(DovetailError, match="openvino-cpu refuses the node of 'y'"):
        OpenVinoCpu().load(RegionModel(parse(text)), {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            """g (float[1,3,8] x, int64[n] s, float[4,3,3] w) => (float y) {
                a = Reshape(x, s) b = Conv(a, w) y = ReduceSum<keepdims = 0>(b) }""",
            r"openvino-cpu refuses the node of '\w+': .*rank.* known",
        ),
        (
            "g (float[2,3] x, float[4,5] w) => (float[A,B] y) { t = Reshape(x, s) s = Shape(w) y = MatMul(x, w) }",
            "openvino-cpu refuses the node of 'matmul_",
        ),
    ],
)
def test_a_refusal_is_one_sentence_about_the_first_node(text, says):
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {text}')
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type.lower()}_{number}"
    with pytest.raises(DovetailError, match=says) as caught:
        OpenVinoCpu().load(RegionModel(Model(ir.from_proto(proto))), {})
    assert "Exception from" not in caught.value.message and "src/" not in caught.value.message


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ('g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] s = {1,1,2,2}> { y = Resize (x, "", s) }', False),
        ('g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] s = {1,1.01,2,2}> { y = Resize (x, "", s) }', True),
        ('g (float[1,2,4,4] x) => (float[1,2,8,8] y) <int64[4] s = {1,2,8,8}> { y = Resize (x, "", "", s) }', False),
        ('g (float[1,2,4,4] x) => (float[1,4,8,8] y) <int64[4] s = {1,4,8,8}> { y = Resize (x, "", "", s) }', True),
        (
            'g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[2] s = {2,2}> { y = Resize<axes=[2,3]> (x, "", s) }',
            False,
        ),
        ('g (float[1,2,4,4] x) => (float[1,4,4,4] y) <float[1] s = {2}> { y = Resize<axes=[-3]> (x, "", s) }', True),
        ('g (float[4,4] x) => (float[8,8] y) <float[2] s = {2,2}> { y = Resize (x, "", s) }', False),
        ('g (float[1,2,4,4] x, float[4] s) => (float[1,2,A,B] y) { y = Resize (x, "", s) }', None),
    ],
)
def test_what_scales_channels(graph, expected):
    from dovetail_cpu_bf16.facts import resizes_channels

    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {graph}')
    assert resizes_channels(next(iter(ir.from_proto(proto).graph))) is expected


def nested(levels: int) -> onnx.ModelProto:
    """Branches in branches: `y` is -x if all levels take the first branch."""
    nodes = [helper.make_node("Neg", ["x"], ["y0"], "neg")]
    for level in range(1, levels + 1):
        then = helper.make_graph(nodes, f"then{level}", [], [helper.make_tensor_value_info(f"y{level - 1}", 1, [4])])
        absolute = [helper.make_node("Abs", ["x"], [f"z{level}"], f"abs{level}")]
        other = helper.make_graph(
            absolute, f"else{level}", [], [helper.make_tensor_value_info(absolute[0].output[0], 1, [4])]
        )
        nodes = [helper.make_node("If", ["c"], [f"y{level}"], f"if{level}", then_branch=then, else_branch=other)]
    inputs = [helper.make_tensor_value_info("x", 1, [4]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info(f"y{levels}", 1, [4])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize(("levels", "backend"), [(3, "cpu-bf16"), (10, "cpu-bf16"), (11, "host"), (20, "host")])
def test_deeply_nested_branches_run_elsewhere(levels, backend):
    """OpenVINO takes twice as long to compile them with every level."""
    compiled = dovetail.compile(nested(levels), ["cpu-bf16"], verify=False)
    assert {node.backend for node in compiled.plan.nodes} == {backend}
    if backend == "host":
        whys = [remark.why for remark in compiled.plan.remarks if remark.node == f"if{levels}"]
        assert any("nested_bodies" in why for why in whys)
    feeds = {"x": np.ones(4, np.float32), "c": np.array(True)}
    assert compiled.run(feeds)[f"y{levels}"].tolist() == [-1, -1, -1, -1]


@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8:weights=int8"])
def test_attention_without_keys_gives_nothing_of_an_earlier_call(backend):
    """OpenVINO's fused kernel writes no result then, so such calls run without the fusion."""
    text = """g (float[B,2,M,4] q, float[B,2,K,4] k, float[B,2,K,4] v) => (float[B,2,M,4] y) {
        t = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, t) p = Softmax<axis = -1>(s) y = MatMul(p, v) }"""
    compiled = dovetail.compile(parse(text), backend)
    assert {node.backend for node in compiled.plan.nodes} == {backend.partition(":")[0]}
    rng = np.random.default_rng(0)
    for keys in (3, 0, 2, 0):
        shapes = {"q": (1, 2, 2, 4), "k": (1, 2, keys, 4), "v": (1, 2, keys, 4)}
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        assert np.any(compiled.run(feeds)["y"]) == bool(keys)


def test_attention_in_one_operation_without_keys_is_an_error():
    text = (
        """g (float[B,2,M,4] q, float[B,2,K,4] k, float[B,2,K,4] v) => (float[B,2,M,4] y) { y = Attention(q, k, v) }"""
    )
    session = OpenVinoCpu().load(RegionModel(parse(text)), {})
    feeds = {"q": np.ones((1, 2, 2, 4), np.float32), **{name: np.ones((1, 2, 3, 4), np.float32) for name in "kv"}}
    session.run(feeds)
    with pytest.raises(DovetailError, match="attention has no keys"):
        session.run(feeds | {name: np.ones((1, 2, 0, 4), np.float32) for name in "kv"})


PADDED = [
    'auto_pad = "SAME_UPPER"', 'auto_pad = "SAME_LOWER"', 'auto_pad = "VALID"', "output_shape = [8,8]",
    'output_shape = [8,8], auto_pad = "SAME_UPPER"', 'output_shape = [7,8], auto_pad = "SAME_LOWER"',
    "output_shape = [7,7], output_padding = [1,1]", "output_shape = [9,10]", "pads = [1,0,0,1]",
]  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("attributes", PADDED)
def test_padding_of_transposed_convolutions_is_that_of_onnx(attributes, kernel):
    """Also where the batch is open, and where nothing at the border of the region shows another shape."""
    text = f"""<ir_version: 10, opset_import: ["": 22]> g (float[N,2,4,4] x) => (float[N,3,1,1] z) <
        float[2,3,{kernel},{kernel}] w = {{{numbers(6 * kernel * kernel)}}}> {{
        y = ConvTranspose<strides = [2,2], {attributes}>(x, w) z = GlobalAveragePool(y) }}"""
    model = onnx.parser.parse_model(text)
    compiled = dovetail.compile(model, ["cpu-bf16:policies=autocast"], verify=False, high=["type:ConvTranspose"])
    x = RNG.standard_normal((2, 2, 4, 4)).astype(np.float32)
    try:
        right = OnnxRuntimeCpu().load(RegionModel(parse(text)), {}).run({"x": x})["z"]
    except DovetailError:
        pytest.skip("ONNX Runtime refuses it")
    np.testing.assert_allclose(compiled.run({"x": x})["z"], right, rtol=1e-3, atol=1e-4)


FITTING = {  # a model, the inputs that fit, and those that do not
    "a product with weights": (
        f"g (float[N,M] x) => (y) <float[6,7] w = {{{numbers(6, 7)}}}> {{ a = Tanh(x) y = MatMul(a, w) }}",
        {"x": (2, 6)},
        {"x": (2, 7)},
    ),
    "a product of two inputs": (
        "g (float[N,M] x, float[P,Q] z) => (y) { a = Tanh(x) y = MatMul(a, z) }",
        {"x": (2, 6), "z": (6, 7)},
        {"x": (2, 7), "z": (6, 7)},
    ),
    "a Concat": (
        "g (float[N,M] x, float[P,Q] z) => (y) { a = Tanh(x) b = Concat<axis = 0>(a, z) y = Sigmoid(b) }",
        {"x": (2, 6), "z": (2, 6)},
        {"x": (2, 7), "z": (2, 6)},
    ),
    "a Reshape": (
        "g (float[N,M] x) => (y) <int64[2] s = {-1, 6}> { a = Tanh(x) b = Reshape(a, s) y = Sigmoid(b) }",
        {"x": (5, 6)},
        {"x": (5, 7)},
    ),
}


@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
@pytest.mark.parametrize("name", FITTING)
def test_inputs_that_do_not_fit_change_no_later_result(name, backend, recwarn):
    """OpenVINO fails from then on where they do, and the region ran on ONNX Runtime in float32."""
    text, fitting, other = FITTING[name]
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text)
    feeds = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in fitting.items()}
    compiled = dovetail.compile(model, backend, verify=False, **({"data": feeds} if backend == "cpu-int8" else {}))
    before, executed = compiled.run(feeds), compiled.executed()
    for _ in range(2):
        with pytest.raises(DovetailError, match="openvino-cpu"):
            compiled.run({name: np.zeros(shape, np.float32) for name, shape in other.items()})
        np.testing.assert_array_equal(compiled.run(feeds)["y"], before["y"])
    assert compiled.executed() == executed
    assert not [one for one in recwarn if issubclass(one.category, dovetail.EngineWarning)]
