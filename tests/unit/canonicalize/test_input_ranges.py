"""`--input-range`: what integers an input holds is promised, used by engines with fewer bits, and kept to."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (int64[n,m] mask, int64[n,m] places, float[n,m] x) => (float[n,1] y, float[n,m] z)
<int64[1] one = {1}>
{
  [count] sum = ReduceSum <keepdims = 1> (mask, one)
  [counted] number = Cast <to = 1> (sum)
  [mean] y = Mul (number, number)
  [place] p = Cast <to = 1> (places)
  [turn] z = Mul (p, x)
}"""
FEEDS = {
    "mask": np.array([[1, 1, 0, 1]]),
    "places": np.array([[0, 1, 2, 3]]),
    "x": np.ones((1, 4), np.float32),
}
PROMISES = {"mask": (0, 1), "places": (0, 1000)}


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    np.savez("x.npz", **FEEDS)
    return "m.onnx"


def on_host(compiled):
    return {node.name for node in compiled.plan.nodes if node.backend == "host"}


def test_a_sum_of_promised_integers_is_exact_where_integers_are_summed_in_float32(model):
    pytest.importorskip("openvino")
    assert on_host(dovetail.compile(model, "cpu-bf16")) == {"count", "counted", "place"}
    compiled = dovetail.compile(model, "cpu-bf16", input_ranges=PROMISES)
    assert on_host(compiled) == set()
    assert compiled.run(FEEDS)["y"].item() == 9
    np.testing.assert_array_equal(compiled.run(FEEDS)["z"], [[0, 1, 2, 3]])


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        ({"mask": (0, 1)}, {"place"}),
        ({"mask": (0, 1 << 32), "places": (-5, 5)}, {"count", "counted"}),
        ({"mask": (0, 1), "places": (0, 1 << 40)}, {"place"}),
    ],
)
def test_only_what_fits_is_taken(model, ranges, left):
    pytest.importorskip("openvino")
    assert on_host(dovetail.compile(model, "cpu-bf16", input_ranges=ranges)) == left


def test_a_saved_result_rejects_what_was_promised_not_to_come(model):
    pytest.importorskip("openvino")
    words = ["--input-range", "mask:0..1", "--input-range", "places:0..1000"]
    assert main(["compile", model, "--backend", "cpu-bf16", "-o", "out", *words]) == 0
    compiled = dovetail.load("out")
    assert compiled.run(FEEDS)["y"].item() == 9
    with pytest.raises(
        DovetailError, match=r"input 'mask' holds 0 to 7, and the result was compiled for 0\.\.1"
    ) as error:
        compiled.run({**FEEDS, "mask": np.array([[0, 7, 1, 0]])})
    assert "--input-range mask:LOW..HIGH" in error.value.hint
    with pytest.raises(DovetailError, match="input 'places' holds -1 to 2"):
        compiled.run({**FEEDS, "places": np.array([[0, 1, 2, -1]])})


def test_the_plan_says_what_was_promised_and_a_replay_has_it(model):
    pytest.importorskip("openvino")
    compiled = dovetail.compile(model, "cpu-bf16", input_ranges=["mask:0..1", "places:0..1000"])
    (remark,) = [one for one in compiled.remarks if one.rule == "input-ranges"]
    assert "'mask' 0..1" in str(remark)
    compiled.plan.save("plan.yaml")
    again = dovetail.compile(model, "cpu-bf16", plan="plan.yaml", input_ranges=PROMISES)
    assert on_host(again) == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mask", "'mask' is not NAME:LOW..HIGH"),
        ("mask:1", "mask:1 is no range of integers"),
        ("mask:2..1", "mask:2..1 is no range of integers"),
        ("mask:0..1.5", "no range of integers"),
        (f"mask:0..{'9' * 5000}", "no range of integers"),
        ("mash:0..1", "the model has no input 'mash'"),
        ("x:0..1", "'x' is float"),
    ],
)
def test_what_is_no_promise_is_an_error(model, text, said, capsys):
    assert main(["compile", model, "--backend", "gpu-fp16", "--input-range", text]) != 0
    assert said in capsys.readouterr().err


def test_python_takes_pairs_and_texts(model):
    with pytest.raises(UsageError, match="gives 'mask' twice"):
        dovetail.compile(model, "gpu-fp16", input_ranges=["mask:0..1", "mask:0..2"])
    with pytest.raises(UsageError, match="no mapping"):
        dovetail.compile(model, "gpu-fp16", input_ranges=3)
    with pytest.raises(UsageError, match="no range"):
        dovetail.compile(model, "gpu-fp16", input_ranges={"mask": (0, 1, 2)})


def test_a_promise_in_somebody_elses_file_is_checked_as_well(model):
    proto = onnx.load(model)
    proto.graph.input[0].metadata_props.add(key="dovetail.range", value="0..1")
    proto.graph.input[1].metadata_props.add(key="dovetail.range", value=f"0..{'9' * 5000}")
    onnx.save(proto, "stamped.onnx")
    with pytest.raises(DovetailError, match="input 'mask' holds"):
        dovetail.compile("stamped.onnx", "gpu-fp16", try_engines=False).run({**FEEDS, "mask": np.array([[5, 0, 0, 0]])})
