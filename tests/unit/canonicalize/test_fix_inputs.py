"""`--fix-input`: an input with one value for good is a constant, in the result and in what it is compared with."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main

TEXT = """<ir_version: 10, opset_import: ["": 20]> g (float[N,4] x, int64 rate, float[2] scale) => (float[N,4] y)
<int64 wide = {16000}, float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}, int64[1] first = {0}> {
  c = Equal (rate, wide)
  s = Gather (scale, first)
  y = If (c) <
    then_branch = t () => (float[N,4] p) { a = MatMul (x, w)  p = Mul (a, s) },
    else_branch = e () => (float[N,4] q) { q = Neg (x) }>
}"""
X = np.arange(8, dtype=np.float32).reshape(2, 4)
FIXED = {"rate": 16000, "scale": [2.0, 3.0]}


@pytest.fixture
def model():
    return onnx.parser.parse_model(TEXT)


def inputs_of(result):
    return [value.name for value in result.model.graph.inputs]


def test_what_depends_on_it_alone_is_folded(model):
    result = dovetail.compile(model, "cpu-bf16", fix_inputs=FIXED, high=["type:MatMul"])
    assert inputs_of(result) == ["x"]
    assert not any(node.op_type in ("If", "Equal") for node in result.model.nodes())
    np.testing.assert_array_equal(result.run({"x": X})["y"], 2 * X)
    assert [value.name for value in model.graph.input] == ["x", "rate", "scale"]


def test_data_may_hold_it_with_its_value(model):
    data = {"x": X, "rate": np.array(16000), "scale": np.float32([2, 3])}
    result = dovetail.compile(model, "cpu-bf16", fix_inputs=FIXED, data=data)
    assert result.verification.worst_snr_db > 30
    np.testing.assert_allclose(result.run(data)["y"], 2 * X, rtol=0.02)
    with pytest.raises(dovetail.DovetailError, match="'rate' was fixed to 16000 .* is given another value"):
        result.run(data | {"rate": 8000})
    with pytest.raises(dovetail.DovetailError, match="was fixed to 8000"):
        dovetail.compile(model, "cpu-bf16", fix_inputs={"rate": 8000}, data=data)


def test_a_result_is_compared_with_the_model_that_has_it(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "m.onnx")
    np.savez("d.npz", x=X, rate=np.array(16000), scale=np.float32([2, 3]))
    fixed = ["--fix-input", "rate=16000", "--fix-input", "scale=2,3.0"]
    assert main(["compile", "m.onnx", "--backend", "cpu-bf16", *fixed, "-o", "out"]) == 0
    assert main(["verify", "m.onnx", "out", "--data", "d.npz"]) == 0
    assert main(["compile", "m.onnx", "--plan", "out/plan.yaml", *fixed, "-o", "again"]) == 0
    assert main(["run", "again", "--data", "d.npz", "-o", "y.npz"]) == 0
    np.testing.assert_allclose(np.load("y.npz")["y"], 2 * X, rtol=0.02)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rat": 1}, "--fix-input rat=1: the model has no input 'rat' (did you mean 'rate'?)"),
        ({"rate": 1.5}, "--fix-input rate=1.5: int64 does not hold this value"),
        ({"rate": 2**70}, "the value of 'rate' is not made of numbers"),
        ({"rate": [1, 2]}, "'rate' is [], the value is [2]"),
        ({"scale": [1, 2, 3]}, "'scale' is [2], the value is [3]"),
        ({"scale": 1e300}, "float32 does not hold this value"),
        ({"scale": "big"}, "the value of 'scale' is not made of numbers"),
        ({"x": np.zeros((1000, 4))}, "'x' gets 4000 numbers; 1024 are the most"),
        (["rate"], "--fix-input 'rate' is not NAME=VALUE"),
        (["rate=one"], "--fix-input rate=one: 'one' is not a number"),
        (["rate=1", "rate=2"], "--fix-input gives 'rate' twice"),
        (3, "fix_inputs=3 is not a mapping from inputs to values"),
    ],
)
def test_what_does_not_fit_is_refused(model, given, says):
    with pytest.raises(dovetail.DovetailError) as refused:
        dovetail.compile(model, "cpu-bf16", fix_inputs=given)
    assert says in refused.value.message


def test_a_number_fills_an_input(model):
    result = dovetail.compile(model, "host", fix_inputs=["scale=4", "rate=16000"])
    np.testing.assert_array_equal(result.run({"x": X})["y"], 4 * X)


def test_a_note_names_the_option_where_an_input_alone_chooses_a_branch(model):
    def noted(result):
        return [note for note in result.notes() if "--fix-input" in note]

    said = "input 'rate' alone chooses a branch: with --fix-input rate=VALUE, the other one is not there"
    assert noted(dovetail.compile(model, "cpu-bf16", verify=False)) == [said]
    assert noted(dovetail.compile(model, "cpu-bf16", verify=False, fix_inputs=FIXED)) == []
