"""Value ranges: what leaves float16 stays in float32, with the number that says so."""

import json

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from onnx import numpy_helper

SOLVERS = ["forward", "fixpoint", "min-cut"]
# A feed-forward block whose inner values are large: `up` multiplies by about 3e4, `down` divides again.
BLOCK = """g (float[N,16] x) => (float[N,16] y, float[N,16] z) <float[16,16] w, float[16,32] up, float[32,16] down> {
  [first] a = MatMul (x, w)
  [up] b = MatMul (a, up)
  [act] c = Relu (b)
  [down] d = MatMul (c, down)
  [out] y = MatMul (d, w)
  [other] z = MatMul (a, w)
}"""


@pytest.fixture
def planted(weighted):
    return weighted(BLOCK, up=3e4, down=1e-4)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.random.default_rng(1).standard_normal((200, 16)).astype(np.float32))
    return path


@pytest.mark.parametrize("solver", SOLVERS)
def test_with_data_what_overflows_stays_high_and_says_how_far_it_goes(planted, data, solver):
    result = dovetail.compile(planted, ["gpu-fp16"], data=data, solver=solver)
    chosen = {node.name: str(node.precision) for node in result.plan.nodes}
    assert {name: chosen[name] for name in ("first", "up", "act", "down", "other")} == {
        "first": "float16", "up": "float32", "act": "float32", "down": "float32", "other": "float16",
    }  # fmt: skip
    largest = json.loads(result.files["ranges.json"])["b"]["absmax"]
    why = next(remark.why for remark in result.remarks if remark.node == "up")
    assert f"its output 'b' reaches {largest:.4g} on the data, beyond the 65504 of float16" in why
    assert result.verification.worst_snr_db > 50


def test_nodes_far_behind_the_last_sum_are_not_run_to_measure_it(weighted, data):
    """Models are measured part by part; a part may have nothing in it that is wanted."""
    chain = "".join(f"  t{i} = Tanh ({f't{i - 1}' if i else 'd'})\n" for i in range(300))
    text = BLOCK.replace("[out] y = MatMul (d, w)", f"{chain}  [out] y = Relu (t299)")
    result = dovetail.compile(weighted(text, up=3e4, down=1e-4), ["gpu-fp16"], data=data)
    assert {node.name: str(node.precision) for node in result.plan.nodes}["up"] == "float32"
    assert not [remark for remark in result.remarks if remark.kind == "failure"]


def test_without_data_the_verification_says_so_and_names_the_worst_output(planted, capsys):
    assert main(["compile", str(planted), "--backend", "gpu-fp16", "--verify"]) == 1
    out = capsys.readouterr().out
    assert "y: SNR broken" in out
    assert "elements are infinite or NaN, and not in both" in out
    assert "SNR broken (worst: 'y')" in out


def test_the_ranges_are_those_of_the_data(planted, data, tmp_path):
    dovetail.compile(planted, ["gpu-fp16"], data=data, verify=False).save(tmp_path / "out")  # all of it calibrates
    found = json.loads((tmp_path / "out" / "ranges.json").read_text())
    x = np.load(data)["x"]
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(planted).graph.initializer}
    a = x @ weights["w"]
    b = a @ weights["up"]
    assert list(found) == sorted(found)
    for name, array in {"x": x, "a": a, "b": b}.items():
        expected = {
            "min": array.min(), "max": array.max(), "absmax": np.abs(array).max(), "smallest": np.abs(array).min()
        }  # fmt: skip
        assert {key: found[name][key] for key in expected} == pytest.approx(expected, rel=1e-3)
    assert found["b"]["accumulated"] == pytest.approx((np.abs(a) @ np.abs(weights["up"])).max(), rel=1e-3)
    assert "accumulated" not in found["a"]


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_sum_that_leaves_float16_on_the_way_stays_high(weighted, solver):
    """The mean of 4096 values of about 100 is small; their sum is not."""
    text = """g (float[4,4096] x) => (float[4,8] y) <float[4096,4096] w, float[1,8] v> {
      [scale] a = MatMul (x, w)  [mean] m = ReduceMean <axes = [1]> (a)  [last] y = MatMul (m, v) }"""
    path = weighted(text, w=0.0)
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.eye(4096, dtype=np.float32), "w"))
    onnx.save(model, path)
    feeds = {"x": np.random.default_rng(0).uniform(90, 110, (4, 4096)).astype(np.float32)}
    result = dovetail.compile(path, ["gpu-fp16"], data=feeds, solver=solver)
    chosen = {node.name: str(node.precision) for node in result.plan.nodes}
    assert (chosen["scale"], chosen["mean"]) == ("float16", "float32")
    why = next(remark.why for remark in result.remarks if remark.node == "mean")
    assert "partial sums of its output 'm' may reach 4." in why


@pytest.mark.parametrize("solver", SOLVERS)
def test_constants_alone_confine_what_bounded_operators_make(weighted, solver):
    """x / 1 after a scale of 1e6: Paddle's pass looks at the scale alone, and overflows one operator later."""
    text = """g (float[4,8] x) => (float[4,8] y)
    <float[8,8] w, float k = {1e6}, float two = {2}, float small = {1e-6}> {
      [first] a = MatMul (x, w)  [sigmoid] s = Sigmoid (a)  [scale] b = Mul (s, k)  [next] c = Add (b, two)
      [back] d = Mul (c, small)  [last] y = MatMul (d, w) }"""
    result = dovetail.compile(weighted(text), ["gpu-fp16"], solver=solver, verify=True)
    chosen = {node.name: str(node.precision) for node in result.plan.nodes}
    assert (chosen["first"], chosen["last"]) == ("float16", "float16")
    assert (chosen["scale"], chosen["next"]) == ("float32", "float32")
    why = next(remark.why for remark in result.remarks if remark.node == "next")
    assert "its output 'c' may reach 1e+06 by its constants, beyond the 65504 of float16" in why
    assert result.verification.worst_snr_db > 50


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_is_not_known_is_no_reason(weighted, solver):
    """A large table of weights has no interval; its rows go low with what reads them."""
    text = """g (int64[4] ids) => (float[4,8] y) <float[20000,8] table, float[8,8] w> {
      [embed] a = Gather (table, ids)  [twice] b = Add (a, a)  [last] y = MatMul (b, w) }"""
    result = dovetail.compile(weighted(text), ["gpu-fp16"], solver=solver, verify=False)
    assert not [remark for remark in result.remarks if "65504 of float16" in remark.why]
    if solver != "forward":
        assert {str(node.precision) for node in result.plan.nodes} == {"float16"}


def test_magnitude_is_no_reason_for_bfloat16(planted, data):
    result = dovetail.compile(planted, ["cpu-bf16"], data=data, verify=False)
    assert {str(node.precision) for node in result.plan.nodes} == {"bfloat16"}
    assert "accumulated" not in json.loads(result.files["ranges.json"])["b"]


@pytest.mark.parametrize("solver", SOLVERS)
def test_masks_have_no_part_in_ranges(weighted, solver):
    text = """g (float[4,8] x, bool[4,8] hide) => (float[4,8] y)
    <float[8,8] w, float low = {-3.4028234663852886e38}, float zero = {0}> {
      [first] a = MatMul (x, w)  [mask] m = Where (hide, low, zero)  [add] b = Add (a, m)  [prob] p = Softmax (b)
      [last] y = MatMul (p, w) }"""
    hide = np.array([[False, True] * 4] * 4)
    feeds = {"x": np.ones((4, 8), np.float32), "hide": hide}
    result = dovetail.compile(weighted(text), ["gpu-fp16"], data=feeds, solver=solver)
    assert {str(node.precision) for node in result.plan.nodes if node.name in ("add", "prob")} <= {"float16", "float32"}
    assert not [remark for remark in result.remarks if "on the data" in remark.why]
    assert result.verification.worst_snr_db > 50


def test_the_same_data_gives_back_the_same_result(planted, data, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    dovetail.compile(planted, ["gpu-fp16"], data=data).save(first)
    dovetail.compile(first / "model.onnx", ["gpu-fp16"], data=data).save(second)
    assert (first / "model.onnx").read_bytes() == (second / "model.onnx").read_bytes()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros((2, 16), np.float32)}, "the model has no input 'y'"),
        ({"x": np.zeros((2, 15), np.float32)}, "'x'"),
        ({"x": np.full((2, 16), np.nan, np.float32)}, "'x' holds 32 values that are not numbers"),
    ],
)
def test_data_that_does_not_fit(planted, tmp_path, capsys, arrays, message):
    """One message that names file and array; what was there before stays."""
    out = tmp_path / "out"
    assert main(["compile", str(planted), "--backend", "gpu-fp16", "-o", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()
    np.savez(tmp_path / "bad.npz", **arrays)
    assert (
        main(["compile", str(planted), "--backend", "gpu-fp16", "--data", str(tmp_path / "bad.npz"), "-o", str(out)])
        == 1
    )
    error = capsys.readouterr().err
    assert message in error
    assert "bad.npz" in error
    assert "Traceback" not in error
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_infinite_weight_stays_so_and_is_counted(weighted, tmp_path):
    text = "g (float[2,8] x) => (float[2,8] y) <float[8,8] w> { a = MatMul (x, w) y = Relu (a) }"
    path = weighted(text)
    model = onnx.load(path)
    weight = np.ones((8, 8), np.float32)
    weight[1, 2] = np.inf
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    onnx.save(model, path)
    result = dovetail.compile(path, ["gpu-fp16"], verify=False)
    result.save(tmp_path / "out")
    stored = numpy_helper.to_array(onnx.load(tmp_path / "out" / "model.onnx").graph.initializer[0])
    assert stored.dtype == np.float16
    assert np.isinf(stored[1, 2])
    assert any("weight 'w' in float16: 1 infinite or NaN in the source" in remark.why for remark in result.remarks)
