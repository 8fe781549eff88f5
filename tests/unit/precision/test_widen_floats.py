"""`widen-floats`: a model in float16 on backends that name it under `widened:`."""

import dovetail
import numpy as np
import pytest
from dovetail_onnx.opening import open_text

CONV = """<ir_version: 10, opset_import: ["": 22]>
g (float16[1,3,16,16] x) => (float16[1,8,16,16] y) <float16[8,3,1,1] w> {
  [conv] a = Conv (x, w) [relu] b = Relu (a) [half] c = Cast <to = 10> (b) [last] y = Conv <group = 8> (c, v) }"""

BRANCHES = """<ir_version: 10, opset_import: ["": 22]>
g (float16[4] x, bool c) => (float16[4] y, float16[4] x) {
  [pick] y = If (c) <then_branch = t () => (float16[4] a) { [add] a = Add (x, x) },
                     else_branch = e () => (float16[4] b) { i = Constant <value_ints = [1, 2, 3, 4]> ()
                                                            k = Cast <to = 10> (i)
                                                            [mul] b = Mul (x, k) }> }"""


def conv():
    model = open_text(CONV.replace("<float16[8,3,1,1] w>", "<float16[8,3,1,1] w, float16[8,1,1,1] v>"), "m")
    import onnx_ir as ir

    rng = np.random.default_rng(0)
    for name, shape in {"w": (8, 3, 1, 1), "v": (8, 1, 1, 1)}.items():
        array = rng.standard_normal(shape).astype(np.float16)
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    return model


def pictures():
    return {"x": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float16)}


def precisions(compiled):
    return {entry.name: str(entry.precision) for entry in compiled.plan.nodes}


def test_products_of_a_float16_model_are_computed_in_bfloat16():
    compiled = dovetail.compile(conv(), "cpu-bf16", data=pictures())
    assert precisions(compiled)["conv"] == precisions(compiled)["last"] == "bfloat16"
    assert any(remark.rule == "widen-floats" for remark in compiled.remarks)


def test_inputs_and_outputs_keep_their_names_and_types():
    compiled = dovetail.compile(conv(), "cpu-bf16", data=pictures())
    outputs = compiled.run(pictures())
    assert outputs.keys() == {"y"} and outputs["y"].dtype == np.float16
    assert compiled.verification.worst_snr_db > 40


def test_casts_of_the_source_model_to_float16_round_nothing_any_more():
    compiled = dovetail.compile(conv(), "cpu-bf16", high=("*",), data=pictures())
    assert "float16" not in {precisions(compiled)[name] for name in ("conv", "relu", "last")}


@pytest.mark.parametrize("taken", [True, False])
def test_bodies_are_widened_with_the_graph_around_them(taken):
    model, feeds = open_text(BRANCHES, "m"), {"x": np.arange(4, dtype=np.float16), "c": np.array(taken)}
    outputs = dovetail.compile(model, "cpu-bf16", data=feeds).run(feeds)
    expected = feeds["x"] * 2 if taken else feeds["x"] * np.float16([1, 2, 3, 4])
    assert np.array_equal(outputs["y"], expected) and np.array_equal(outputs["x"], feeds["x"])
    assert {array.dtype for array in outputs.values()} == {np.dtype(np.float16)}


def test_a_backend_that_computes_float16_keeps_it():
    both = dovetail.plan(conv(), ["gpu-fp16", "cpu-bf16"])
    assert not any(remark.rule == "widen-floats" for remark in both.remarks)


def test_a_sequence_keeps_the_model_in_float16():
    text = """<ir_version: 10, opset_import: ["": 22]>
g (float16[4] x) => (float16[4] y) {
  [both] s = SequenceConstruct (x, x)
  i = Constant <value_int = 0> () [one] a = SequenceAt (s, i) [last] y = Relu (a) }"""
    compiled = dovetail.compile(open_text(text, "m"), "cpu-bf16", data={"x": np.ones(4, np.float16)})
    (why,) = [remark.why for remark in compiled.remarks if remark.rule == "widen-floats"]
    assert why == "the model stays in float16: ai.onnx.SequenceConstruct depends on the type"
    assert precisions(compiled)["last"] == "float16"


def test_the_plan_of_a_widened_model_is_replayed(tmp_path):
    first = dovetail.compile(conv(), "cpu-bf16", data=pictures())
    first.save(tmp_path / "out")
    again = dovetail.compile(conv(), plan=tmp_path / "out")
    assert np.array_equal(first.run(pictures())["y"], again.run(pictures())["y"])


def test_operators_of_onnx_runtime_are_widened_where_their_schema_takes_float32():
    text = """<ir_version: 10, opset_import: ["": 22, "com.microsoft": 1]> g (float16[2,4] x) => (float16[2,4] y) {
                [relu] a = Relu (x) [gelu] y = com.microsoft.QuickGelu (a) }"""
    feeds = {"x": np.linspace(-2, 2, 8, dtype=np.float16).reshape(2, 4)}
    compiled = dovetail.compile(open_text(text, "m"), "cpu-bf16", data=feeds)
    assert precisions(compiled)["gelu"] == "float32"
    assert compiled.run(feeds)["y"].dtype == np.float16 and compiled.verification.worst_snr_db > 50


ROUNDED = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,8] x) => (float[{shape}] y) {{
  [round] r = Cast <to = {to}> (x) {between} [back] y = Cast <to = 1> ({last}) }}"""


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("moved", [False, True], ids=["next", "moved"])
@pytest.mark.parametrize("to", [10, 16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
def test_a_cast_to_a_narrow_type_and_back_rounds(backend, to, moved):
    between, last, shape = ("t = Transpose <perm = [1, 0]> (r)", "t", "8,2") if moved else ("", "r", "2,8")
    model = open_text(ROUNDED.format(to=to, between=between, last=last, shape=shape), "m")
    data = {"x": np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)}
    right = dovetail.compile(model, "host").run(data)["y"]
    assert (right != (data["x"].T if moved else data["x"])).any()
    np.testing.assert_array_equal(dovetail.compile(model, backend, data=data).run(data)["y"], right)
