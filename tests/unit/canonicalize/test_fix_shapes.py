"""`--fix-shape`: extents that a model leaves open become numbers, for backends that take fixed shapes."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[n,4] x) => (float[n,4] y) <float[4,4] w = {1,0,0,0, 0,2,0,0, 0,0,3,0, 0,0,0,4}>
{ [dense] a = MatMul (x, w)  [relu] y = Relu (a) }"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    np.savez("x.npz", x=np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32))
    return "m.onnx"


def test_a_model_with_an_open_batch_goes_through_a_backend_that_takes_fixed_shapes(model, capsys):
    assert (
        main(
            [
                "compile",
                model,
                "--backend",
                "bpu-int8:march=bayes",
                "--fix-shape",
                "x:2x4",
                "--data",
                "x.npz",
                "-o",
                "out",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "verified on 4 batches" in said
    compiled = dovetail.load("out")
    assert list(compiled.model.graph.inputs[0].shape) == [2, 4]
    assert compiled.plan.named("dense").backend == "bpu-int8"
    assert main(["verify", model, "out", "--data", "x.npz"]) == 0
    assert main(["verify", model, "out"]) == 0
    assert "x 2x4" in capsys.readouterr().out


def test_the_same_in_python_for_plans_goals_and_layers(model):
    plan = dovetail.plan(model, "bpu-int8:march=bayes", fix_shapes={"x": (2, 4)})
    assert plan.named("dense").backend == "bpu-int8"
    compiled = dovetail.compile(
        model, "bpu-int8:march=bayes", fix_shapes={"x": "2x4"}, data="x.npz", layers=True, min_cosine=0.9
    )
    assert compiled.plan.summary["accuracy"]["met"] is None  # fewer than eight batches judge
    assert dovetail.layer_errors(model, compiled, "x.npz").batches == 12


def test_a_note_says_how_where_a_backend_wants_it(model):
    plan = dovetail.plan(model, "bpu-int8")
    (said,) = [remark for remark in plan.remarks if remark.rule == "open-extents"]
    assert said.why == (
        "the model leaves extents of 'x' ([n, 4]) open: "
        "2 of 2 nodes are not on bpu-int8 because of that: --fix-shape x:1x4"
    )
    assert said.suggest == "--fix-shape x:1x4"
    assert not [remark for remark in dovetail.plan(model, "host").remarks if remark.rule == "open-extents"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": "2x4"}, "--fix-shape z:2x4: the model has no input 'z'"),
        ({"x": "2"}, "--fix-shape x:2: 'x' has 2 axes: [n, 4]"),
        ({"x": "2x5"}, "--fix-shape x:2x5: 'x' is [n, 4]"),
        ({"x": "0x4"}, "--fix-shape x:0x4 is no shape"),
        ({"x": "2xn"}, "--fix-shape x:2xn is no shape"),
        ([7], "is no mapping from inputs to shapes"),
    ],
)
def test_what_does_not_fit_is_an_error(model, given, message):
    with pytest.raises(DovetailError) as caught:
        dovetail.plan(model, "host", fix_shapes=given)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fix-shape", "2x4"], "is not NAME:1x3x224x224"),
        (["--fix-shape", "x:1x4", "--fix-shape", "x:2x4"], "gives 'x' twice"),
    ],
)
def test_a_wrong_command_line_leaves_with_2(model, arguments, message, capsys):
    assert main(["compile", model, "--backend", "host", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_one_name_is_one_number(tmp_path):
    text = MODEL.replace("(float[n,4] x)", "(float[n,4] x, float[n,4] z)").replace("MatMul (x, w)", "Mul (x, z)")
    onnx.save(onnx.parser.parse_model(text.replace("[dense]", "[scale]")), tmp_path / "two.onnx")
    path = tmp_path / "two.onnx"
    plan = dovetail.plan(path, "bpu-int8:march=bayes", fix_shapes={"x": "2x4"})
    assert not [remark for remark in plan.remarks if remark.rule == "open-extents"]
    with pytest.raises(DovetailError, match="'n' is 2 elsewhere, and 3 here"):
        dovetail.plan(path, "host", fix_shapes={"x": "2x4", "z": "3x4"})


def test_a_question_mark_is_no_name(tmp_path):
    proto = onnx.parser.parse_model(MODEL.replace("[n,4]", "[n,m]"))
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = "?"
    onnx.save(proto, tmp_path / "unnamed.onnx")
    plan = dovetail.plan(tmp_path / "unnamed.onnx", "bpu-int8:march=bayes", fix_shapes={"x": "2x4"})
    assert plan.named("dense").backend == "bpu-int8"
