"""`compile --verify` and `verify`: which inputs they make, what they say of a wrong result, and how they exit."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from onnx import TensorProto, helper, numpy_helper

PICTURE = """<ir_version: 10, opset_import: ["" : 22]>
g (float[N,1,H,W] x) => (float[N,1,A,B] y) <float[1,1,20,20] w> { y = Conv (x, w) }"""
BROKEN = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2,4] x) => (float[2,4] y) <float k = {1000}, float small = {0.001}> {
  [up] a = Mul (x, k)  [act] b = Relu (a)  [down] y = Mul (b, small) }"""


@pytest.fixture
def picture(tmp_path, monkeypatch):
    """A convolution that needs pictures of 20 by 20 at least."""
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(PICTURE)
    model.graph.initializer.append(numpy_helper.from_array(np.full((1, 1, 20, 20), 0.1, np.float32), "w"))
    onnx.save(model, "m.onnx")


def test_extents_are_tried_until_the_original_runs(picture, capsys):
    assert main(["compile", "m.onnx", "--backend", "cpu-bf16", "--verify", "-o", "out"]) == 0
    assert "verified on one batch of random inputs (x 1x1x64x64):" in capsys.readouterr().out


def test_the_user_may_say_the_shapes(picture, capsys):
    assert main(["verify", "m.onnx", "m.onnx", "--input-shapes", "x:2x1x24x32"]) == 0
    assert "(x 2x1x24x32)" in capsys.readouterr().out
    np.savez("example.npz", x=np.zeros((3, 1, 21, 22), np.float32))
    assert main(["compile", "m.onnx", "--backend", "host", "--verify", "--input-shapes", "example.npz"]) == 0
    assert "(x 3x1x21x22)" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["x", "x:", "x:1x", "x:axb", "1x2", "x:-1x4", ":1x2"])
def test_a_shape_that_is_none(picture, text, capsys):
    assert main(["verify", "m.onnx", "m.onnx", "--input-shapes", text]) == 2
    assert f"error: {text!r} is neither NAME:1x3x48x320 nor a file of arrays" in capsys.readouterr().err


def test_the_result_is_there_although_it_could_not_be_verified(picture, capsys):
    arguments = ["compile", "m.onnx", "--backend", "cpu-bf16", "--verify", "--input-shapes", "x:1x1x8x8", "-o", "out"]
    assert main(arguments) == 1
    assert "the original does not run on random inputs" in capsys.readouterr().err
    assert main(["verify", "m.onnx", "out", "--input-shapes", "x:1x1x32x32"]) == 0


@pytest.fixture
def overflowing(tmp_path, monkeypatch):
    """A model that leaves float16 on the way, and a result that was told to stay there."""
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(BROKEN), "m.onnx")
    np.savez("x.npz", x=np.full((2, 4), 100, np.float32))
    arguments = ["compile", "m.onnx", "--backend", "gpu-fp16", "--pin", "up=gpu-fp16/float16", "--pin"]
    return [*arguments, "act=gpu-fp16/float16", "-o", "out"]


def test_a_broken_result_exits_with_1_and_is_saved(overflowing, capsys):
    assert main([*overflowing, "--data", "x.npz"]) == 1
    out, err = capsys.readouterr()
    assert "8 elements are infinite or NaN, and not in both" in out
    assert "error: the result is broken" in err
    assert Path("out/model.onnx").is_file()
    assert main(["verify", "m.onnx", "out", "--data", "x.npz"]) == 1
    assert "error: the result is broken" in capsys.readouterr().err
    assert main(["verify", "m.onnx", "out", "--data", "x.npz", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"] is True


def test_a_wrong_shape_is_said_to_be_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = '<ir_version: 10, opset_import: ["" : 22]> g (float[2,3] x) => ({} y) <int64[1] a = {{1}}> {{ y = {} }}'
    for name, type_, node in (("a", "float[2]", "ReduceSum<keepdims=0>(x, a)"), ("b", "float[2,1]", "ReduceSum(x, a)")):
        onnx.save(onnx.parser.parse_model(text.format(type_, node)), f"{name}.onnx")
    assert main(["verify", "a.onnx", "b.onnx"]) == 1
    assert "y: wrong shape: [2, 1], the original gives [2]" in capsys.readouterr().out


def classifier(zipmap):
    """What skl2onnx makes of a LogisticRegression: a linear classifier, and maps of its classes."""
    nodes = [
        helper.make_node("Neg", ["X"], ["negative"], name="neg"),
        helper.make_node("LinearClassifier", ["negative"], ["label", "scores"], name="classify", domain="ai.onnx.ml",
                         classlabels_ints=[0, 1, 2], coefficients=[float(i) for i in range(12)],
                         intercepts=[0.0, 1.0, 2.0], multi_class=1, post_transform="SOFTMAX"),
    ]  # fmt: skip
    probabilities = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])
    if zipmap:
        nodes.append(helper.make_node("ZipMap", ["scores"], ["maps"], name="zip", domain="ai.onnx.ml",
                                      classlabels_int64s=[0, 1, 2]))  # fmt: skip
        number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, number))
        probabilities = helper.make_value_info("maps", kind)
    label = helper.make_tensor_value_info("label", TensorProto.INT64, ["N"])
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ["N", 4])
    graph = helper.make_graph(nodes, "classifier", [x], [label, probabilities])
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("backend", ["cpu-bf16", "gpu-fp16"])
def test_outputs_that_are_maps_stay_on_the_host(backend, tmp_path, monkeypatch, capsys):
    import dovetail

    monkeypatch.chdir(tmp_path)
    onnx.save(classifier(zipmap=True), "m.onnx")
    assert main(["compile", "m.onnx", "--backend", backend, "--verify", "-o", "out"]) == 0
    assert "maps[2]: SNR" in capsys.readouterr().out
    saved = onnx.load("out/model.onnx")
    onnx.checker.check_model(saved, full_check=True)
    assert saved.graph.output[1].type == onnx.load("m.onnx").graph.output[1].type
    outputs = dovetail.load("out").run({"X": np.eye(4, dtype=np.float32)})
    assert [sorted(found) for found in outputs["maps"]] == [[0, 1, 2]] * 4
    assert dovetail.load("out").plan.find("maps").backend == "host"
    np.savez("x.npz", X=np.eye(4, dtype=np.float32)[np.arange(100) % 4])  # two batches
    assert main(["run", "out", "--data", "x.npz", "-o", "y.npz"]) == 0
    assert np.load("y.npz")["maps[1]"].shape == (100,)


def test_a_tree_whose_shapes_nobody_infers(tmp_path, monkeypatch, capsys):
    """ONNX Runtime tells the types of its results and not their ranks."""
    monkeypatch.chdir(tmp_path)
    model = classifier(zipmap=True)
    tree = helper.make_node(
        "TreeEnsembleClassifier", ["negative"], ["label", "scores"], name="classify", domain="ai.onnx.ml",
        class_ids=[2], class_nodeids=[0], class_treeids=[0], class_weights=[1.0], classlabels_int64s=[0, 1, 2],
        nodes_falsenodeids=[0], nodes_featureids=[0], nodes_modes=["LEAF"], nodes_nodeids=[0], nodes_treeids=[0],
        nodes_truenodeids=[0], nodes_values=[0.0], post_transform="NONE")  # fmt: skip
    model.graph.node[1].CopyFrom(tree)
    onnx.save(model, "m.onnx")
    assert main(["compile", "m.onnx", "--backend", "cpu-bf16", "--verify"]) == 0
    assert "maps[2]: SNR exact" in capsys.readouterr().out


DIGITS = Path(__file__).parents[2] / "examples" / "digits"
SAMPLES = str(DIGITS / "test.npz")
PROGRAMS = [
    (("--programs",), "there is no data to run programs on"),
    (("--programs", "--layers", "--data", SAMPLES), "leave one of them out"),
    (("--min-program-snr", "3", "--data", SAMPLES), "--min-program-snr is a limit for --programs"),
    (("--programs", "--min-program-snr", "much", "--data", SAMPLES), "--min-program-snr much is no goal"),
    (("--programs", "--data", SAMPLES), "no region of the result is a program"),
]


@pytest.fixture(scope="module")
def without_programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "out"
    assert main(["compile", str(DIGITS / "digits.onnx"), "--backend", "host", "-o", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(("arguments", "says"), PROGRAMS)
def test_programs_need_data_and_a_result_that_has_some(arguments, says, without_programs, capsys):
    assert main(["verify", str(DIGITS / "digits.onnx"), str(without_programs), *arguments]) == 2
    assert says in capsys.readouterr().err
