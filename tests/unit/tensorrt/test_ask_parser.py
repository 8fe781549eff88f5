"""`--ask-parser`: where the backend file and the real parser say different things."""

import json

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail_tensorrt.libraries import library

HEADER = '<ir_version: 10, opset_import: ["": 20]>'
WRONG = """
backend: wrong-trt
device: cuda
precision: {low: float16, high: float32}
opset: 13..24
dynamic: profile
types: {f: [float16, float32]}
unlisted: refuse
ops: {"MatMul, Bernoulli": {types: f, policy: lower}, Cast: {}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [tensorrt-engine]}
"""


def model(text, **weights):
    made = onnx.parser.parse_model(f"{HEADER} {text}")
    for name, array in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return made


PROMISES = """g (float[4,4] x) => (float[4,4] y) {
    a = MatMul(x, w)  [coin] b = Bernoulli(a)  [tanh] c = Tanh(b)  y = MatMul(c, w) }"""


def test_both_kinds_of_differences_are_listed(builder, with_backend):
    # A file that promises Bernoulli and leaves out Tanh.
    plan = dovetail.plan(model(PROMISES, w=np.eye(4)), "wrong-trt", ask_parser=True, plugins=with_backend(WRONG))
    asked = plan.summary["parser"]
    assert (asked["asked"], asked["nodes"] >= 4) == (builder.title, True)
    promised, left_out = sorted(asked["differences"], key=lambda entry: entry["node"])
    assert (promised["node"], promised["table"], promised["parser"]) == ("coin", "", "the parser has no Bernoulli")
    assert (left_out["node"], left_out["backend"], left_out["parser"]) == ("tanh", "host", "")
    assert "inline.yaml:" in left_out["table"]
    said = {remark.node: remark.why for remark in plan.remarks if remark.rule == "parser-differs"}
    assert said["coin"] == (
        "coin (Bernoulli, on wrong-trt): the table says yes and the parser no: the parser has no Bernoulli"
    )
    assert said["tanh"].startswith("tanh (Tanh, on host): the table says no and the parser yes: ")
    assert set(said.values()) < set(plan.notes)
    assert plan.notes[-1].startswith(f"{builder.title} and the table agree on ")
    assert plan.notes[-1].endswith(", and differ on 2 nodes")


def test_the_installed_file_agrees(builder):
    text = """g (float[N,4] x) => (float[N,4] y, float[N,4] z) {
        a = MatMul(x, w)  s = Softmax(a)  b = Bernoulli(s)  y = MatMul(b, w)  c = Celu(y)  z = Add(c, s) }"""
    plan = dovetail.plan(model(text, w=np.eye(4)), "tensorrt", ask_parser=True)
    assert plan.summary["parser"]["differences"] == []
    assert plan.summary["coverage"]["host"] >= 1


def test_what_the_builder_alone_refuses_is_no_difference(builder):
    text = """g (float[1,8,4] boxes, float[1,2,8] scores) => (int64[K,3] y) <int64[1] most = {3}> {
        y = NonMaxSuppression(boxes, scores, most) }"""
    if builder.sdk != "TensorRT-RTX":
        pytest.skip("the full TensorRT has it")
    plan = dovetail.plan(model(text), "tensorrt", ask_parser=True)
    assert plan.summary["parser"]["differences"] == []


def test_the_command_line_has_them_as_data_and_exits_with_zero(builder, tmp_path, capsys):
    onnx.save(model(PROMISES, w=np.eye(4)), tmp_path / "m.onnx")
    asked = ["plan", str(tmp_path / "m.onnx"), "--backend", "tensorrt", "--ask-parser"]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["parser"]["asked"] == builder.title
    assert main(asked) == 0
    assert "parser-asked" in capsys.readouterr().out


def test_asking_changes_no_plan_and_builds_nothing(builder, convolution, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_ENGINE_CACHE", str(tmp_path / "cache"))
    plain, asked = (dovetail.plan(convolution("2"), "tensorrt", **more) for more in ({}, {"ask_parser": True}))
    assert plain.nodes == asked.nodes
    assert not (tmp_path / "cache").exists()


def test_without_a_parser_the_way_out_is_named(packages, convolution):
    packages()
    with pytest.raises(DovetailError, match="TensorRT is not installed") as caught:
        dovetail.plan(convolution(), "tensorrt", ask_parser=True)
    assert "dovetail-tensorrt[rtx]" in caught.value.hint
    assert library.cache_info().currsize == 0


def test_another_backend_has_no_parser(convolution):
    with pytest.raises(UsageError, match="--ask-parser is for engines of TensorRT"):
        dovetail.plan(convolution(), "cpu-bf16", ask_parser=True)
