"""Shape arithmetic on OpenVINO, which has 32 bits for it: what provably fits is part of the region, the rest is not."""

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest

ARITHMETIC = """<ir_version: 8, opset_import: ["": 18]>
g (float[N,4] x, float[M,6] q) => (float[N,4] z, y) <
  float[4,4] w = {{1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}}, int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}},
  int64[1] minus = {{-1}}, int64 large = {{2147483648}}, int64 larger = {{1099511627776}},
  int64 endless = {{9223372036854775807}}, int64 k = {{10000}}, int64[1] first = {{0}},
  int64[1] last = {{1}}, int64[1] end = {{9223372036854775807}}> {{
  m = MatMul(x, w) z = Relu(m) s = Shape(z) n = Gather(s, zero) c = Gather(s, one) e = Size(z)
  t = Shape(q) r = Gather(t, zero) {text} }}"""
FITTING = {
    "an extent and one": "y = Add(n, one)",
    "two extents of one tensor": "y = Mul(n, c)",
    "all extents of one tensor": "y = Add(e, one)",
    "an extent and the largest integer": "y = Min(n, endless)",
    "an extent that is known, times a factor": "a = Mul(c, k) y = Mul(a, k)",
    "an extent as a float": "y = Cast<to = 1>(n)",
    "twice an extent, as a target": (
        "a = Mul(n, two) b = Unsqueeze(a, first) d = Concat<axis = 0>(b, minus) y = Reshape(z, d)"
    ),
    "products of extents of two tensors, as a target": (
        "a = Mul(n, r) b = Unsqueeze(a, first) d = Concat<axis = 0>(last, b) f = ConstantOfShape(d) y = Relu(f)"
    ),
    "a bound to the end": "h = Min(n, endless) b = Unsqueeze(h, first) y = Slice(z, first, b, first)",
    "a choice of extents": "b = Greater(n, two) h = Where(b, n, r) i = Unsqueeze(h, first) y = ConstantOfShape(i)",
}
WIDE = {
    "a factor of 2^31": "y = Mul(s, large)",
    "a term of 2^40": "y = Add(s, larger)",
    "a factor of 2^31, as a float": "a = Mul(n, large) y = Cast<to = 1>(a)",
    "a factor of 2^31, divided again": "a = Mul(n, large) y = Div(a, large)",
    "a factor of 2^31, as a target": (
        "a = Mul(n, large) b = Div(a, large) d = Unsqueeze(b, first) f = ConstantOfShape(d) y = Relu(f)"
    ),
    "the square of the elements": "a = Mul(e, k) b = Mul(a, a) y = Cast<to = 1>(b)",
    "the square of an extent, compared": "a = Mul(n, k) b = Mul(a, a) y = Greater(b, larger)",
    "all extents of one tensor, multiplied in float32": "y = ReduceProd<keepdims = 0>(s)",
    "extents of two tensors": "y = Mul(n, r)",
    "the largest integer": "y = Concat<axis = 0>(s, end)",
    "the largest integer, chosen": "b = Greater(n, two) y = Where(b, endless, n)",
    "to the end, or not": "b = Greater(n, two) h = Where(b, end, last) y = Slice(z, first, h, first)",
    "a negative extent of 2^32": "a = Neg(n) b = Mul(a, large) y = Add(b, b)",
    "a count that wraps to one that fits": "a = Mul(e, large) b = Add(a, one) y = Mod(b, k)",
}


def compiled(text, backend="cpu-bf16"):
    model = onnx.parser.parse_model(ARITHMETIC.format(text=text))
    return model, dovetail.compile(model, [backend], verify=False)


def check(model, result):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for rows in (3, 5000, 1):
        feeds = {"x": np.ones((rows, 4), np.float32), "q": np.zeros((rows + 1, 6), np.float32)}
        expected = session.run(["y"], feeds)[0]
        np.testing.assert_array_equal(result.run(feeds)["y"], expected)


@pytest.mark.parametrize("what", FITTING)
def test_shape_arithmetic_that_fits_is_part_of_the_region(what):
    model, result = compiled(FITTING[what])
    check(model, result)
    assert {node.backend for node in result.plan.nodes} == {"cpu-bf16"}


@pytest.mark.parametrize("what", WIDE)
def test_shape_arithmetic_that_may_not_fit_runs_elsewhere(what):
    model, result = compiled(WIDE[what])
    check(model, result)
    whys = [remark.why for remark in result.plan.remarks]
    assert "not on cpu-bf16: wide_integers = true; allowed: false" in whys
    assert "cpu-bf16" in {node.backend for node in result.plan.nodes}


ROUNDED = {  # what OpenVINO computes in float32, with integers that have more digits
    "Clip": "y = Clip(a, low, high)",
    "Div": "y = Div(a, seven)",
    "Equal": "y = Equal(a, b)",
    "GreaterOrEqual": "y = GreaterOrEqual(a, b)",
    "Less, and the choice": "c = Less(a, b) y = Where(c, a, b)",
    "MatMul": "c = Unsqueeze(a, last) y = MatMul(c, seven1)",
    "Mod": "y = Mod(a, seven)",
    "Pow": "c = Sub(a, b) d = Add(c, many) y = Pow(d, two)",
    "ReduceMax": "y = ReduceMax<keepdims = 0>(a, axis)",
    "ReduceMean": "y = ReduceMean<keepdims = 0>(a, axis)",
    "ReduceSum": "y = ReduceSum<keepdims = 0>(a, axis)",
    "Relu": "y = Relu(a)",
    "Where": "c = Greater(f, half) y = Where(c, a, b)",
}


@pytest.mark.generated
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("what", ROUNDED)
def test_integers_with_more_digits_than_floats_are_exact(what, dtype):
    kind = np.dtype(dtype).name
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (
        {kind}[N] a, {kind}[N] b, float[N] f, float[N,4] x) => (z, y) <
        float[4,4] w = {{1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}}, {kind} low = {{-1000000001}},
        {kind} high = {{1000000001}}, {kind} seven = {{7}}, {kind}[1,1] seven1 = {{7}},
        {kind} two = {{2}}, {kind} many = {{5003}}, int64[1] axis = {{0}}, int64[1] last = {{1}},
        float half = {{0.5}}> {{ m = MatMul(x, w) z = Relu(m) {ROUNDED[what]} }}"""
    model = onnx.parser.parse_model(text)
    feeds = {
        "a": np.array([16777217, -16777219, 2**30 + 1, 123456789], dtype),
        "b": np.array([16777218, -16777220, 2**30 + 1, 123456788], dtype),
        "f": np.array([1, 0, 1, 0], np.float32), "x": np.ones((4, 4), np.float32),
    }  # fmt: skip
    used = {value.name: feeds[value.name] for value in model.graph.input}
    result = dovetail.compile(model, ["cpu-bf16"], verify=False)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(["y"], used)[0]
    np.testing.assert_array_equal(result.run(used)["y"], expected)
    assert "cpu-bf16" in {node.backend for node in result.plan.nodes}


@pytest.mark.parametrize(
    "text",
    [
        "i = ArgMax(x) y = Mod(i, seven)",
        "i = ArgMax(x) y = Equal(i, seven)",
        "y = Equal(a, seven)",
        "y = Clip(a, a0, seven)",
        "i = Clip(ids, zero, seven) y = Mod(i, seven)",
        "c = Less(a, seven) i = Cast<to = 6>(c) y = ReduceSum<keepdims = 0>(i, axis)",
        "i = Cast<to = 6>(small) c = Greater(f, half) y = Where(c, i, a0)",
    ],
)
def test_integers_that_floats_hold_stay(text):
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (
        int32[N] a, int16[N] small, int64[N] ids, float[N] f, float[N,4] x) => (y) <
        int64 seven = {{7}}, int64[1] axis = {{0}}, int64 zero = {{0}}, int32 a0 = {{0}},
        float half = {{0.5}}> {{ {text} }}"""
    if "(a, " in text:
        text = text.replace("int64 seven", "int32 seven")
    result = dovetail.compile(onnx.parser.parse_model(text), ["cpu-bf16"], verify=False)
    assert not [remark for remark in result.plan.remarks if "wide_integers" in remark.why]


def test_bounds_that_are_given_are_limited_to_32_bits():
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[N,4] x, int64[1] end) => (float[M,4] y) <
        float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}, int64[1] first = {0}> {
        m = MatMul(x, w) y = Slice(m, first, end, first) }"""
    result = dovetail.compile(onnx.parser.parse_model(text), ["cpu-bf16"], verify=False)
    assert {node.backend for node in result.plan.nodes} == {"cpu-bf16"}
    for end, rows in ((2**63 - 1, 3), (2**32, 3), (2, 2), (-(2**63), 0), (-(2**32), 0), (-1, 2)):
        assert result.run({"x": np.ones((3, 4), np.float32), "end": np.array([end])})["y"].shape == (rows, 4), end


def test_large_results_are_written_whatever_was_in_their_memory(monkeypatch):
    """Arrays of fixed extents are bound to the request before it runs, without a look at what they hold."""
    text = """<ir_version: 10, opset_import: ["": 22]> g (float[8192,4] x) => (int64[8192] y) {
        y = ArgMax<axis = 1, keepdims = 0>(x) }"""
    result = dovetail.compile(onnx.parser.parse_model(text), ["cpu-bf16"], verify=False)
    assert {node.backend for node in result.plan.nodes} == {"cpu-bf16"}
    x = np.random.default_rng(0).standard_normal((8192, 4)).astype(np.float32)
    monkeypatch.setattr(np, "empty", lambda shape, dtype=float: np.full(shape, 2**62).astype(dtype))
    np.testing.assert_array_equal(result.run({"x": x})["y"], x.argmax(1))


OTHERWISE = {  # what OpenVINO rounds, limits or does not wrap, and what it reads with a sign
    "y = Div(a, b)": ("int8", "uint8"),
    "y = Add(a, b)": ("int8", "uint8", "uint32"),
    "y = Sub(a, b)": ("int8", "uint8", "uint32"),
    "y = Mul(a, b)": ("int8", "uint8", "uint32"),
    "y = Abs(a)": ("int8", "uint32"),
    "y = Max(a, b)": ("uint32",),
    "y = Greater(a, b)": ("uint32",),
    "y = Greater(a, nine)": ("uint32",),
    "y = Cast<to = 1>(a)": ("uint32", "uint64"),
    "c = Add(a, b) y = Cast<to = 7>(c)": ("int16", "uint16"),
    "c = Cast<to = 12>(a) y = Cast<to = 7>(c)": ("int8", "int16", "int32"),
    "c = Cast<to = 13>(a) y = Cast<to = 1>(c)": ("int8", "int32"),
    "c = Cast<to = 4>(a) y = Cast<to = 7>(c)": ("int8", "int16", "int32"),
    "y = Trilu(pairs)": ("int32",),
    "y = Pad(pairs, pads, most)": ("int32",),
    'y = ScatterElements<axis = 1, reduction = "add">(pairs, rows, pairs)': ("uint8", "int16"),
    "y = Cast<to = 9>(a)": ("int32",),
}


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize(("text", "kind"), [(text, kind) for text, kinds in OTHERWISE.items() for kind in kinds])
def test_integers_at_the_ends_of_their_types_are_those_of_onnx(text, kind):
    limits = np.iinfo(kind)
    ends = np.array([limits.max, limits.min or 3, limits.max - 1, limits.max // 2 + 1, 5, 1, 90, 100], kind)
    graph = f"""<ir_version: 10, opset_import: ["": 18]> g ({kind}[N] a, {kind}[N] b, float[N,4] x) => (z, y) <
        float[4,4] w = {{1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}}, {kind} nine = {{9}}, {kind} most = {{{limits.max - 1}}},
        int64[2] square = {{2, 4}}, int64[4] pads = {{1, 0, 0, 1}}, int64[2,4] rows = {{0,0,1,1, 1,1,2,2}}> {{
        m = MatMul(x, w) z = Relu(m) {"pairs = Reshape(a, square)" if "pairs" in text else ""} {text} }}"""
    model = onnx.parser.parse_model(graph)
    feeds = {"a": ends, "b": np.roll(ends, 3), "x": np.ones((2, 4), np.float32)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options).run(["y"], feeds)[0]
    result = dovetail.compile(model, ["cpu-bf16"], verify=False)
    np.testing.assert_array_equal(result.run(feeds)["y"], expected)
    assert "cpu-bf16" in {node.backend for node in result.plan.nodes}


@pytest.mark.parametrize(
    "text",
    [
        "y = Cast<to = 1>(bytes)",
        "c = Greater(bytes, seven) y = Cast<to = 1>(c)",
        "y = Max(bytes, seven)",
        "c = Cast<to = 5>(bytes) y = Cast<to = 1>(c)",
        "c = Cast<to = 12>(bytes) y = Cast<to = 1>(c)",
        "y = Transpose(bytes)",
        "c = Cast<to = 6>(bytes) d = Cast<to = 6>(seven) e = Mul(c, d) y = Cast<to = 1>(e)",
    ],
)
def test_integers_that_stay_within_their_types_stay(text):
    graph = f"""<ir_version: 10, opset_import: ["": 18]> g (uint8[N] bytes, float[N,4] x) => (z, y) <
        float[4,4] w = {{1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}}, uint8 seven = {{7}}> {{
        m = MatMul(x, w) z = Relu(m) {text} }}"""
    result = dovetail.compile(onnx.parser.parse_model(graph), ["cpu-bf16"], verify=False)
    assert {node.backend for node in result.plan.nodes} == {"cpu-bf16"}


@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
def test_columns_of_wide_integers_keep_their_digits(backend):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (int64[1,1,4] x) => (int64[1,1,2,2] y) <
        int64[2] image = {2,2}, int64[2] block = {1,1}> { y = Col2Im(x, image, block) }""")
    numbers = np.array([[[2**40, -(2**33), 3, 2**31]]])
    result = dovetail.compile(model, backend, verify=False)
    np.testing.assert_array_equal(result.run({"x": numbers})["y"], numbers.reshape(1, 1, 2, 2))
