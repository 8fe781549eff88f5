"""What rounding would ruin stays in float32, whatever the policy says: cancellation, divisors, integers of any size."""

import json

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.cli.main import main
from onnx import numpy_helper

SOLVERS = ["forward", "fixpoint", "min-cut"]
BACKENDS = ["cpu-bf16", "cpu-bf16:policies=lean", "gpu-fp16", "gpu-fp16:policies=lean"]
# The LayerNorm of Flax, whose mean is eight times its deviation.
FLAX = """g (float[N,256] x) => (float[N,256] y) <float[256,256] w, float[256] b, float[256,256] v,
  float n={0.00390625}, float eps={0.000001}, float zero={0}, int64[1] last={1}> {
  h0 = MatMul (x, w)  h = Add (h0, b)  s = ReduceSum <keepdims=1> (h, last)  mean = Mul (s, n)
  sq = Mul (h, h)  s2 = ReduceSum <keepdims=1> (sq, last)  m2 = Mul (s2, n)
  mm = Mul (mean, mean)  d = Sub (m2, mm)  var = Max (zero, d)
  ve = Add (var, eps)  sd = Sqrt (ve)  inv = Reciprocal (sd)  c = Sub (h, mean)  z = Mul (c, inv)
  y = MatMul (z, v) }"""
# torch.nn.functional.normalize behind a projection
NORMALIZE = """g (float[N,64] x) => (float[N,64] y) <float[64,64] w, float eps={1e-12}, int64[1] last={1}> {
  h = MatMul (x, w)  n = ReduceL2 <keepdims=1> (h, last)  m = Max (n, eps)  y = Div (h, m) }"""
# as onnxruntime.quantization.quantize_dynamic writes a product
INT8 = """g (float[N,64] x) => (float[N,8] y) <int8[64,8] w, int8 wz={0}, float ws={0.01}, float[8,8] v> {
  q, s, z = DynamicQuantizeLinear (x)  a = MatMulInteger (q, w, z, wz)
  [accumulated] f = Cast <to=1> (a)  ss = Mul (s, ws)  [scaled] h = Mul (f, ss)  y = MatMul (h, v) }"""


@pytest.fixture
def model(tmp_path):
    """`model(text, **arrays)`: the file of a model in ONNX text with these weights."""

    def make(text, opset=18, **arrays):
        made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
        for name, array in arrays.items():
            made.graph.initializer.append(numpy_helper.from_array(array, name))
        path = tmp_path / "model.onnx"
        onnx.save(made, path)
        return path

    return make


@pytest.fixture
def flax(model):
    random = np.random.default_rng(0)
    w, v = ((random.standard_normal((256, 256)) / 16).astype(np.float32) for _ in range(2))
    path = model(FLAX, w=w, v=v, b=(8 + 0.1 * random.standard_normal(256)).astype(np.float32))
    return path, random.standard_normal((32, 256)).astype(np.float32)


@pytest.fixture
def normalize(model):
    random = np.random.default_rng(0)
    x = random.standard_normal((4, 64)).astype(np.float32)
    x[2] = 0
    return model(NORMALIZE, w=(random.standard_normal((64, 64)) / 8).astype(np.float32)), x


def snr(path, result, feeds, name="y"):
    """Decibels between ONNX Runtime in float32 and a result."""
    (expected,) = onnxruntime.InferenceSession(path).run([name], feeds)
    noise = np.square(expected - result.run(feeds)[name], dtype=np.float64).sum()
    return 10 * np.log10(np.square(expected, dtype=np.float64).sum() / max(noise, 1e-300))


def chosen(result):
    return {node.output: str(node.precision) for node in result.plan.nodes}


def why(result, node):
    return next(remark.why for remark in result.remarks if remark.node == node and remark.kind == "missed")


@pytest.mark.generated
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_variance_as_a_difference_of_means_keeps_its_digits(flax, backend, solver):
    """18 of these nodes in float32 were worth 34 dB in a trained net; without them a variance is noise."""
    path, x = flax
    result = dovetail.compile(path, backend, solver=solver, verify=False)
    high = {name for name, kind in chosen(result).items() if kind == "float32"}
    assert high >= {"s", "mean", "sq", "s2", "m2", "mm", "d", "var", "ve", "sd", "inv", "c"}
    assert {"h0", "y"}.isdisjoint(high)
    assert snr(path, result, {"x": x}) > (30 if "bf16" in backend else 48)


@pytest.mark.parametrize("solver", SOLVERS)
def test_data_shows_what_else_must_not_be_rounded(flax, solver):
    """A mean that is eight times the deviation takes three bits of every element: the sum before it is not rounded."""
    path, x = flax
    result = dovetail.compile(path, "cpu-bf16", data={"x": x}, solver=solver, verify=False)
    assert (chosen(result)["h0"], chosen(result)["h"]) == ("bfloat16", "float32")
    assert "its result cancels in 'c', which is 8.04 times smaller on the data" in why(result, "Add_h")
    assert snr(path, result, {"x": x}) > 42


# A difference of large values: how it comes about, what of it is float32, and what of that is told of the difference.
OFFSETS = {
    "constants": (
        "a = MatMul (x, w)  b = Sigmoid (a)  c = Add (b, thousand)  d = Sub (c, thousand)  y = MatMul (d, w)",
        {"c", "d"},
        "its inputs are 1e+03 times its result by its constants",
    ),
    "constants on a long way": (
        "a = MatMul (x, w)  b = Sigmoid (a)  c = Add (b, thousand)  e = Reshape (c, shape)  f = Relu (e)"
        "  d = Sub (f, thousand)  y = MatMul (d, w)",
        {"c", "e", "f", "d"},
        "its inputs are 1e+03 times its result by its constants",
    ),
    "nothing": ("a = MatMul (x, w)  b = Sigmoid (a)  c = Add (b, two)  d = Sub (c, two)  y = MatMul (d, w)", set(), ""),
}


@pytest.mark.generated
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("nodes", "high", "told"), OFFSETS.values(), ids=OFFSETS)
def test_constants_show_a_difference_of_large_values(model, backend, solver, nodes, high, told):
    constants = "float[8,8] w, float thousand = {1000}, float two = {2}, int64[2] shape = {4, 8}"
    random = np.random.default_rng(0)
    path = model(
        f"g (float[4,8] x) => (float[4,8] y) <{constants}> {{ {nodes} }}",
        w=random.standard_normal((8, 8)).astype(np.float32),
    )
    feeds = {"x": random.standard_normal((4, 8)).astype(np.float32)}
    result = dovetail.compile(path, backend, solver=solver, verify=False)
    assert {name for name, kind in chosen(result).items() if kind == "float32"} == high
    if high:
        assert told in why(result, "Sub_d")
    assert snr(path, result, feeds) > 35


def test_a_difference_of_two_products_is_left_alone(model):
    """Both come rounded out of their products; computing their difference in float32 would gain nothing."""
    random = np.random.default_rng(0)
    w = random.standard_normal((64, 64)).astype(np.float32)
    text = """g (float[8,64] x) => (float[8,64] y) <float[64,64] w, float[64,64] v> {
      a = MatMul (x, w)  b = MatMul (x, v)  d = Sub (a, b)  y = MatMul (d, w) }"""
    path = model(text, w=w, v=w + 0.01 * random.standard_normal((64, 64)).astype(np.float32))
    feeds = {"x": random.standard_normal((8, 64)).astype(np.float32)}
    result = dovetail.compile(path, "cpu-bf16", data=feeds, verify=False)
    assert set(chosen(result).values()) == {"bfloat16"}


def test_a_list_of_the_user_wins_over_conditioning_and_is_told_what_it_costs(flax):
    path, x = flax
    result = dovetail.compile(path, "cpu-bf16", low=["Sub_d"], pins=["ReduceSum_s2=cpu-bf16/bfloat16"], verify=False)
    kinds = chosen(result)
    assert (kinds["d"], kinds["s2"], kinds["m2"]) == ("bfloat16", "bfloat16", "float32")
    told = {remark.node: remark.why for remark in result.remarks if remark.pass_ == "assign-types"}
    cancels = "conditioning warns: it is part of the variance of 'h' as E[x^2] - E[x]^2, whose digits cancel"
    assert told["Sub_d"] == f"computed in bfloat16, as --low Sub_d says; {cancels}"
    assert told["ReduceSum_s2"] == f"bfloat16, as pinned; {cancels}"


@pytest.mark.generated
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("with_data", [False, True])
def test_a_row_of_zeros_stays_one_behind_a_norm(normalize, backend, solver, with_data):
    path, x = normalize
    result = dovetail.compile(path, backend, solver=solver, verify=False, data={"x": x} if with_data else None)
    assert np.isfinite(result.run({"x": x})["y"]).all()
    assert snr(path, result, {"x": x}) > 40
    if "fp16" in backend:
        assert {chosen(result)[name] for name in ("m", "y")} == {"float32"}
        assert "which may be as small as 1e-12, which rounds to zero in float16" in why(result, "Div_y")


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("backend", ["gpu-fp16", "gpu-fp16:policies=lean"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_accumulator_of_integers_does_not_fit_float16(model, backend, solver):
    random = np.random.default_rng(0)
    w = random.integers(60, 127, (64, 8)).astype(np.int8)
    path = model(INT8, 17, w=w, v=(random.standard_normal((8, 8)) / 3).astype(np.float32))
    feeds = {"x": np.abs(random.standard_normal((4, 64))).astype(np.float32)}
    result = dovetail.compile(path, backend, solver=solver, verify=False)
    assert (chosen(result)["f"], chosen(result)["h"]) == ("float32", "float32")
    assert "its input 'f' may reach 2.056e+06 by its constants" in why(result, "scaled")
    assert snr(path, result, feeds) > 45


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("with_data", [False, True])
def test_a_constant_that_a_value_may_hold_does_not_become_infinite_behind_it(model, solver, with_data):
    """A row that is hidden altogether is uniform, and NaN if -1e9 becomes infinite; data may hide nothing."""
    text = """g (float[4,8] x, bool[4,8] hidden) => (float[4,8] y) <float[8,8] w, float far = {-1e9}> {
      a = MatMul (x, w)  m = Where (hidden, far, a)  r = Reshape (m, same)  p = Softmax (r)  y = MatMul (p, w) }"""
    random = np.random.default_rng(0)
    path = model(text, w=random.standard_normal((8, 8)).astype(np.float32), same=np.array([4, 8]))
    feeds = {"x": random.standard_normal((4, 8)).astype(np.float32), "hidden": np.zeros((4, 8), bool)}
    data = dict(feeds) if with_data else None
    result = dovetail.compile(path, "gpu-fp16:policies=lean", solver=solver, data=data, verify=False)
    feeds["hidden"][1] = True
    feeds["hidden"][2, 3:] = True
    assert "may hold a constant of 1e+09" in why(result, "Reshape_r")
    assert snr(path, result, feeds) > 50


def test_what_was_measured_leaves_room_for_other_data(model):
    """Twice what the data shows must fit; where an accumulator of bytes may overflow, eight times."""
    random = np.random.default_rng(0)
    path = model(
        "g (float[N,8] x) => (float[N,8] y) <float[8,8] w> { a = MatMul (x, w)  y = MatMul (a, w) }",
        w=np.eye(8, dtype=np.float32),
    )
    for reached, kind in ((30000, "float16"), (40000, "float32"), (70000, "float32")):
        data = {"x": np.full((2, 8), reached, np.float32)}
        assert chosen(dovetail.compile(path, "gpu-fp16", data=data, verify=False))["a"] == kind
    path = model(INT8, 17, w=random.integers(1, 9, (64, 8)).astype(np.int8), v=np.eye(8, dtype=np.float32))
    for others, too_large in ((0.2, True), (0, False)):
        x = np.full((1, 64), others, np.float32)
        x[0, 0] = 1
        result = dovetail.compile(path, "gpu-fp16:policies=lean", solver="min-cut", data={"x": x}, verify=False)
        assert json.loads(result.files["ranges.json"])["f"]["absmax"] < 65504 / 2
        assert ("its input 'f' reaches " in why(result, "scaled")) is too_large


def test_values_too_small_for_the_digits_of_float16_are_not_computed_in_it(model):
    path = model(
        "g (float[N,8] x) => (float[N,8] y) <float[8,8] w> { a = MatMul (x, w)  y = MatMul (a, w) }",
        w=np.eye(8, dtype=np.float32),
    )
    data = {"x": np.full((2, 8), 3e-5, np.float32)}
    result = dovetail.compile(path, "gpu-fp16", data=data, verify=False)
    assert chosen(result)["a"] == "float32"
    assert "its output 'a' reaches only 3e-05 on the data, where float16 is subnormal" in why(result, "MatMul_a")


def test_data_says_that_an_integer_is_small(model):
    """Without data a count may be anything; with data it is what it is there."""
    text = """g (int64[N,16] ids) => (float[N,8] y) <float[16,8] w> {
      [count] c = Cast <to=1> (ids)  [product] p = MatMul (c, w)  y = Tanh (p) }"""
    path = model(text, w=np.ones((16, 8), np.float32) / 100)
    ids = np.arange(64).reshape(4, 16)
    without = dovetail.compile(path, "gpu-fp16", verify=False)
    assert chosen(without)["p"] == "float32"
    assert "its input 'c' holds integers of unknown range" in why(without, "product")
    assert chosen(dovetail.compile(path, "gpu-fp16", data={"ids": ids}, verify=False))["p"] == "float16"
    assert chosen(dovetail.compile(path, "gpu-fp16", data={"ids": ids * 2000}, verify=False))["p"] == "float32"


@pytest.mark.slow
def test_without_data_it_is_said_what_was_assumed(flax, capsys, tmp_path):
    path, x = flax
    out = str(tmp_path / "out")
    command = ["compile", str(path), "--backend", "gpu-fp16:policies=lean", "--solver", "min-cut", "-o", out]
    assert main(command) == 0
    captured = capsys.readouterr()
    note = "is unknown without --data; they are assumed to fit float16"
    assert (captured.out + captured.err).count(note) == 1
    assert main(["explain", out, "MatMul_h0"]) == 0
    explained = capsys.readouterr().out
    assert "the range of its values is unknown without data; they are assumed to fit float16" in explained
    result = dovetail.compile(path, "gpu-fp16:policies=lean", verify=False)
    assert any(line.startswith("the range of ") and note in line for line in result.notes())
    about = [remark for remark in result.remarks if remark.rule == "assumed-range" and remark.node]
    assert {"MatMul_h0", "Mul_z"} <= {remark.node for remark in about}
    assert "Mul_mm" not in {remark.node for remark in about}
    for other in (
        dovetail.compile(path, "gpu-fp16:policies=lean", data={"x": x}, verify=False),
        dovetail.compile(path, "cpu-bf16", verify=False),
    ):
        assert not [line for line in other.notes() if note in line]
        assert not [remark for remark in other.remarks if remark.rule == "assumed-range"]
