"""Open extents: a note says what they cost, and `--fix-shape data` gives them those of the data."""

import re
import shlex

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[n,3,h,w] image) => (float[n,4,h,w] y) <float[4,3,1,1] k = {1,0,0, 0,2,0, 0,0,3, 1,1,1}>
{ [conv] a = Conv (image, k)  [relu] b = Relu (a)  [half] y = Sigmoid (b) }"""
BPU = "bpu-int8:march=bayes"


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    np.savez("x.npz", image=numbers(6, 3, 8, 10))
    return "m.onnx"


def note(remarks):
    return next((remark for remark in remarks if remark.rule == "open-extents"), None)


def test_an_engine_that_is_slower_on_open_extents_is_noted_with_the_option_to_copy(model):
    said = note(dovetail.plan(model, "cpu-bf16", data="x.npz").remarks)
    assert said.why == (
        "the model leaves extents of 'image' ([n, 3, h, w]) open: cpu-bf16 may be slower with open extents: "
        "--fix-shape image:1x3x8x10"
    )
    fixed = dovetail.plan(model, "cpu-bf16", data="x.npz", fix_shapes="data")
    assert note(fixed.remarks) is None


def test_of_an_engine_whose_times_do_not_depend_on_it_nothing_is_said(model):
    backends = "cpu-int8:weights=int8", "cpu-int8:weights=int8,runtime=onnxruntime"
    assert [note(dovetail.plan(model, one).remarks) is None for one in backends] == [False, True]


FRAMES = """<ir_version: 10, opset_import: ["": 21]>
g (float[AXIS,6] x) => (float[AXIS,6] y) { y = Relu (x) }"""


@pytest.mark.parametrize(
    ("axis", "rows", "shape"),
    [
        ("frames", [8], "8x6"),
        ("frames", [8, 8], "8x6"),
        ("n", [8], "1x6"),  # an array of samples
        ("n", [8, 8, 8], "8x6"),
        ("n", [8, 8, 3], "1x6"),
    ],
)
def test_the_option_has_the_extents_that_the_model_is_run_with(axis, rows, shape):
    """Of an axis that counts samples, that is one, or how many each of several batches has."""
    framed = onnx.parser.parse_model(FRAMES.replace("AXIS", axis))
    data = [{"x": numbers(number, 6)} for number in rows]
    said = note(dovetail.plan(framed, "cpu-bf16", data=data).remarks)
    assert said.suggest == f"--fix-shape x:{shape}"
    if len(data) > 1:
        result = dovetail.compile(framed, "cpu-bf16", data=data, fix_shapes="data")
        assert result.run({"x": data[0]["x"][: int(shape[0])]})["y"].shape == tuple(map(int, shape.split("x")))
        assert result.verification.worst_snr_db > 40


def test_of_many_inputs_the_note_names_three(tmp_path):
    inputs = ", ".join(f"float[n,4] x{number}" for number in range(19))
    names = ", ".join(f"x{number}" for number in range(19))
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => (float[n,4] y) {{{{ y = Sum ({names}) }}}}'
    onnx.save(onnx.parser.parse_model(text.replace("{{", "{").replace("}}", "}")), tmp_path / "m.onnx")
    said = note(dovetail.plan(tmp_path / "m.onnx", "cpu-bf16").remarks)
    assert said.why.startswith(
        "the model leaves extents of 'x0' ([n, 4]), 'x1' ([n, 4]), 'x2' ([n, 4]) and 16 other inputs open: "
    )


def test_without_data_the_note_names_what_only_the_user_knows(model, capsys):
    said = note(dovetail.plan(model, BPU).remarks)
    assert "3 of 3 nodes are not on bpu-int8 because of that" in said.why
    assert said.suggest == (
        "--fix-shape image:1x3xNxN (or --data FILE --fix-shape data for the extents of your inputs)"
    )
    assert main(["plan", model, "--backend", BPU, "-o", "plan.yaml"]) == 0
    assert "note: the model leaves extents of 'image'" in capsys.readouterr().err


def test_a_node_that_something_else_keeps_away_is_not_counted(tmp_path):
    text = MODEL.replace("[half] y = Sigmoid (b)", "[odd] y = Det (b)").replace("float[n,4,h,w] y", "float[n,4] y")
    onnx.save(onnx.parser.parse_model(text.replace("[n,3,h,w]", "[n,3,h,h]")), tmp_path / "m.onnx")
    assert "2 of 3 nodes are not on bpu-int8" in note(dovetail.plan(tmp_path / "m.onnx", BPU).remarks).why


NESTED = """<ir_version: 10, opset_import: ["": 21]>
g (float[n,4] x, bool c) => (float[k,m] y) {{ [choose] y = If (c) <
  then_branch = one () => (float[k,m] p) {{ [first] p = Relu (x) }},
  else_branch = other () => (float[k,m] q) {{ [second] a = {operator} (x) [third] q = Cast <to = 1> (a) }}> }}"""


@pytest.mark.parametrize(("operator", "helps"), [("NonZero", False), ("Sigmoid", True)])
def test_fixed_extents_are_proposed_only_where_they_bring_a_node(operator, helps):
    """OpenVINO refuses an If with open extents; those of a NonZero stay open, whatever the input's are."""
    model = onnx.parser.parse_model(NESTED.format(operator=operator))
    plan = dovetail.plan(model, "cpu-bf16")
    assert plan.summary["coverage"] == {"host": len(plan.nodes)}
    said = note(plan.remarks)
    assert (said is not None) == helps
    if helps:
        assert f"{len(plan.nodes)} of {len(plan.nodes)} nodes are not on cpu-bf16 because of that" in said.why
        words = shlex.split(said.suggest)
        fixed = dovetail.plan(
            onnx.parser.parse_model(NESTED.format(operator=operator)), "cpu-bf16", fix_shapes=words[1]
        )
        assert fixed.summary["coverage"] == {"cpu-bf16": len(fixed.nodes)}


def test_an_extent_that_two_inputs_share_is_tried_with_one_number():
    """It is the first axis of one input, where most models count samples, and the second one of the other."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[s] b, float[n,s] x) => (float[n,s] y) { a = Add (x, b)  y = Relu (a) }"""
    said = note(dovetail.plan(onnx.parser.parse_model(text), BPU).remarks)
    assert "2 of 2 nodes are not on bpu-int8 because of that" in said.why


def test_a_fact_about_open_extents_counts_where_the_file_says_so(tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[n,4,h] x) => (float[n,4,1] y) { [pool] y = GlobalLpPool (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert "1 of 1 node is not on cpu-bf16" in note(dovetail.plan(tmp_path / "m.onnx", "cpu-bf16").remarks).why


def test_nothing_on_the_bpu_is_an_error_with_the_option_that_helps(model):
    with pytest.raises(DovetailError) as caught:
        dovetail.compile(model, BPU, data="x.npz")
    assert "--fix-shape image:1x3x8x10" in caught.value.hint
    compiled = dovetail.compile(model, BPU, data="x.npz", fix_shapes="data")
    assert compiled.plan.named("conv").backend == "bpu-int8"


@pytest.mark.slow
def test_the_extents_of_the_data_on_the_command_line(model, capsys):
    given = ["--backend", BPU, "--data", "x.npz", "--fix-shape", "data"]
    assert main(["compile", model, *given, "-o", "out"]) == 0
    assert list(dovetail.load("out").model.graph.inputs[0].shape) == [1, 3, 8, 10]
    assert main(["bisect", model, *given]) == 0
    assert "conv" in capsys.readouterr().out


def test_bisect_takes_shapes_from_python_too(model):
    ranking = dovetail.bisect(model, BPU, data="x.npz", fix_shapes={"image": "2x3x8x10"})
    assert ranking.rows


def test_check_judges_the_model_with_fixed_shapes(model, capsys):
    import dovetail_bpu_int8

    file = next(iter(dovetail_bpu_int8.__path__)) + "/bpu_int8.yaml"
    assert main(["check", file, model]) == 0
    assert "is not known before run time" in capsys.readouterr().out
    assert main(["check", file, model, "--data", "x.npz", "--fix-shape", "data"]) == 0
    assert "is not known before run time" not in capsys.readouterr().out
    assert main(["check", file, model, "--fix-shape", "image:1x3x8x10"]) == 0
    assert "is not known before run time" not in capsys.readouterr().out


def test_a_shape_that_is_written_wins_over_the_data(model):
    plan = dovetail.plan(model, BPU, data="x.npz", fix_shapes=["data", "image:2x3x4x4"])
    assert plan.named("conv").backend == "bpu-int8"
    assert "'image' 2x3x4x4" in next(r.why for r in plan.remarks if r.rule == "fixed-shapes")


def test_an_extent_of_the_same_name_takes_the_number_that_is_written(tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[n,4] x, float[n,4] z) => (float[n,4] y) { [sum] y = Add (x, z) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    data = {"x": numbers(6, 4), "z": numbers(6, 4)}
    plan = dovetail.plan(tmp_path / "m.onnx", "host", data=data, fix_shapes=["data", "x:3x4"])
    assert "'x' 3x4, 'z' 3x4" in next(r.why for r in plan.remarks if r.rule == "fixed-shapes")


def test_samples_of_several_shapes_are_named(model, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    np.savez(folder / "a.npz", image=numbers(1, 3, 8, 10))
    np.savez(folder / "b.npz", image=numbers(5, 3, 8, 10))
    assert dovetail.plan(model, BPU, data=folder, fix_shapes="data").named("conv").backend == "bpu-int8"
    np.savez(folder / "c.npz", image=numbers(1, 3, 9, 10))
    with pytest.raises(DovetailError) as caught:
        dovetail.plan(model, BPU, data=folder, fix_shapes="data")
    assert "a.npz" in caught.value.message
    assert "c.npz" in caught.value.message
    words = shlex.split(re.search(r"\((--data .*)\)", caught.value.hint)[1])
    assert main(["plan", model, "--backend", BPU, *words, "-o", "plan.yaml"]) == 0, "what is proposed works as it is"


@pytest.mark.parametrize("backend", ["cpu-bf16", BPU])
def test_no_shape_is_proposed_that_the_data_does_not_have(model, tmp_path, backend):
    """The samples differ in an extent: whatever is fixed rejects some of them."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        np.savez(folder / f"{number}.npz", image=numbers(1, 3, 8 + number, 10))
    said = note(dovetail.plan(model, backend, data=folder).remarks).why
    assert "image:1x3" not in said and "xN" not in said
    assert "pad or crop all samples to one shape" in said
    words = shlex.split(re.search(r"\((--data .*)\)", said)[1])
    assert main(["plan", model, "--backend", backend, *words, "-o", "plan.yaml"]) == 0


def test_extents_of_data_need_data(model, capsys):
    with pytest.raises(UsageError, match="there is no data"):
        dovetail.plan(model, BPU, fix_shapes="data")
    assert main(["plan", model, "--backend", BPU, "--fix-shape", "data"]) == 2


@pytest.mark.parametrize("data", [True, False])
def test_many_inputs_are_fixed_by_the_data_and_not_one_by_one(data):
    from dovetail_onnx.opening import open_text

    names = [f"input_{number}" for number in range(16)]
    declared = ", ".join(f"float[batch, seq, {number + 2}] {name}" for number, name in enumerate(names))
    sums = " ".join(f"r{number} = ReduceSum <keepdims = 0> ({name})" for number, name in enumerate(names))
    total = f"y = Sum ({', '.join(f'r{number}' for number in range(16))})"
    model = open_text(f'<ir_version: 8, opset_import: ["": 17]> g ({declared}) => (float y) {{ {sums} {total} }}', "m")
    arrays = {name: np.ones((1, 3, number + 2), np.float32) for number, name in enumerate(names)}
    plan = dovetail.plan(model, "cpu-bf16", **({"data": arrays} if data else {}))
    texts = [
        f"{remark.why} {remark.suggest}" for remark in plan.remarks if "--fix-shape" in f"{remark.why} {remark.suggest}"
    ]
    assert texts
    assert all("--fix-shape data" in text and "input_7:" not in text for text in texts)
