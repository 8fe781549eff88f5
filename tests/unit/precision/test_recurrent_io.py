"""State that goes out of a model and comes in again has one type on both sides."""

import onnx
import pytest
from dovetail import api
from dovetail_onnx.opening import open_text
from dovetail_precision.graph_patterns import find_recurrent_io

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'
SOLVERS = ("fixpoint", "forward", "min-cut")


@pytest.mark.parametrize(
    ("given", "result", "pair"),
    [
        ("past_key_values.0.key", "present.0.key", True),
        ("past_key_values.0.key", "present_key_values.0.key", True),
        ("past_key_values.0.key", "present.1.key", False),
        ("past_key_values.0.key", "present.0.value", False),
        ("past", "present", True),
        ("past_0", "present_0", True),
        ("state", "new_state", True),
        ("state_in", "state_out", True),
        ("h_in:0", "h_out:0", True),
        ("state", "state_out", True),
        ("h0", "hn", True),
        ("c_0", "c_n", True),
        ("input", "output", False),
        ("in", "out", False),
        ("x", "y", False),
        ("image", "mask", False),
    ],
)
def test_pairs_by_name(given, result, pair):
    model = open_text(
        f'{HEAD}g (float[2,4] "{given}") => (float[2,4] "{result}") {{ "{result}" = Neg ("{given}") }}', "t"
    )
    assert bool(find_recurrent_io(model.graph)) is pair


@pytest.mark.parametrize(
    ("given", "result", "pair"),
    [
        ("float[2,4]", "float[2,5]", True),  # a cache grows along one axis
        ("float[n,4]", "float[n,4]", True),
        ("float[2,4]", "float[3,5]", False),
        ("float[2,4]", "float[2,4,1]", False),
        ("float[2,4]", "double[2,4]", False),
        ("int64[2,4]", "int64[2,4]", False),
    ],
)
def test_pairs_by_type(given, result, pair):
    model = open_text(f"{HEAD}g ({given} past, {result} o) => ({result} present) {{ present = Neg (o) }}", "t")
    assert bool(find_recurrent_io(model.graph)) is pair


GROWING = """g (float[2,3,8] past, float[2,1,8] x) => (float[2,4,8] present, float[2,4,8] y) <float[8,8] w> {
  present = Concat <axis = 1> (past, x)
  y = MatMul (present, w)
}"""
STEP = """g (float[2,8] state, float[2,8] x) => (float[2,8] new_state, float[2,8] y) <float[8,8] w> {
  a = MatMul (state, w)
  b = Add (a, x)
  e = Exp (b)
  new_state = Tanh (e)
  y = MatMul (new_state, w)
}"""
OTHER = """g (float[2,8] state, float[2,8] x) => (float[2,8] new_state) <float[8,8] w> {
  a = Exp (state)
  new_state = MatMul (a, w)
}"""
BOTH = """g (float[2,8] state, float[2,8] x) => (float[2,8] new_state, float[2,8] y) <float[8,8] w> {
  y = Exp (state)
  new_state = MatMul (state, w)
}"""
SEEN = """g (float[2,8] state, float[2,8] x) => (float[2,8] new_state) <float[8,8] w> {
  a = Cast <to = 10> (state)
  b = Cast <to = 1> (a)
  new_state = MatMul (b, w)
}"""
TEXTS = {"growing": GROWING, "step": STEP, "other": OTHER, "both": BOTH, "seen": SEEN}


@pytest.mark.generated
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", TEXTS)
def test_both_sides_have_one_type(tmp_path, fp16, name, solver):
    weight = "shape = Constant <value = int64[2] {8, 8}> ()  w = ConstantOfShape <value = float[1] {0.5}> (shape)"
    text = TEXTS[name].replace("<float[8,8] w> {", "{ " + weight)
    (tmp_path / "m.onnxtxt").write_text(HEAD + text)
    for keep in (True, False):
        result = api.compile(
            tmp_path / "m.onnxtxt", ["test-fp16"], solver=solver, keep_io_types=keep, verify=False, plugins=fp16
        )
        result.save(tmp_path / "out")
        saved = onnx.load(tmp_path / "out" / "model.onnx")
        onnx.checker.check_model(saved, full_check=True)
        types = [value.type.tensor_type.elem_type for value in (saved.graph.input[0], saved.graph.output[0])]
        assert types[0] == types[1]
        said = [remark.why for remark in result.remarks if remark.rule == "state"]
        assert len(said) == (not keep)


def test_a_state_that_is_read_low_is_low_on_both_sides(tmp_path, fp16):
    text = HEAD + STEP.replace("<float[8,8] w> {", "{").replace("float[2,8] x)", "float[2,8] x, float[8,8] w)")
    (tmp_path / "m.onnxtxt").write_text(text)
    result = api.compile(tmp_path / "m.onnxtxt", ["test-fp16"], keep_io_types=False, verify=False, plugins=fp16)
    assert "state 'state' comes back as 'new_state': both are float16" in [remark.why for remark in result.remarks]


@pytest.mark.parametrize(("given", "expected"), [("bfloat16", "BFLOAT16"), ("double", "FLOAT"), ("float", "FLOAT16")])
def test_inputs_become_narrower_never_wider(tmp_path, fp16, given, expected):
    """What the model casts first is given in the type after that cast, if that is narrower."""
    text = f"g ({given}[2,8] x, float[8,8] w) => (float[2,8] y) {{ a = Cast <to = 1> (x)  y = MatMul (a, w) }}"
    (tmp_path / "m.onnxtxt").write_text(HEAD + text)
    result = api.compile(tmp_path / "m.onnxtxt", ["test-fp16"], keep_io_types=False, verify=False, plugins=fp16)
    assert result.model.graph.inputs[0].dtype.name == expected
