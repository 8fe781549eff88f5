"""New values and nodes get names that nothing in the whole model has, in whichever scope it stands."""

import dovetail
import numpy as np
import pytest
from dovetail import Builder
from dovetail.ir import FreshNames
from dovetail.passes import Context, Pipeline
from dovetail_onnx.opening import open_text

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'

NORMALIZED = """g (float[1,2,4,4] x, float[1] {input}) => (float[1,2,4,4] y, float[1] z)
<float[2,2,1,1] w = {{1, 2, 3, 4}}, float[2] s = {{1, 2}}, float[2] b = {{3, 4}}, float[2] m = {{0, 1}},
 float[2] v = {{1, 2}}> {{
  [conv] c = Conv (x, w)
  [bn] y = BatchNormalization (c, s, b, m, v)
  [other] z = Relu ({input})
}}"""

SCALED = """g (float[2,2] x, float[1] {input}) => (float[2,2] y, float[1] z)
<float[2,2] w = {{1, 2, 3, 4}}, float two = {{2}}> {{
  [product] p = MatMul (x, w)
  [mul] y = Mul (p, two)
  [other] z = Relu ({input})
}}"""

READ_TWICE = """g (float[4] x, bool c) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
  [low] w_float16 = MatMul (x, w)
  [a] d = Add (x, w_float16)
  [y_] y = If (c) <
    then_branch = t () => (float[4] t0) { [inside] w_float16_1 = Sinh (x)  [more] t0 = Add (w_float16_1, w) },
    else_branch = e () => (float[4] e0) { [high] e0 = Pow (d, w) }
  >
}"""


def test_a_name_is_looked_for_in_every_scope():
    text = """g (float[4] taken, bool c) => (float[4] y) <float[4] weight = {1, 2, 3, 4}> {
      [node] y = If (c) <
        then_branch = t () => (float[4] inner) <float[4] deep = {1, 2, 3, 4}> { [body] inner = Add (taken, deep) },
        else_branch = e () => (float[4] other) { other = Add (taken, weight) }
      >
    }"""
    names = FreshNames.of(open_text(HEAD + text, "scopes").graph)
    taken = ["taken", "weight", "node", "inner", "deep", "body", "y"]
    assert [names.fresh(name) for name in taken] == [f"{name}_1" for name in taken]
    assert names.fresh("free") == "free"
    assert names.fresh("free") == "free_1"


def test_many_names_of_one_stem_are_all_different():
    names = FreshNames(["v", "v_3"])
    assert len({names.fresh("v") for _ in range(50_000)} | {"v", "v_3"}) == 50_002


@pytest.mark.parametrize(
    ("text", "inputs"), [(NORMALIZED, ("bn_weight", "bn_bias", "conv_weight")), (SCALED, ("mul_weight",))]
)
def test_folded_weights_leave_the_names_of_inputs_alone(text, inputs):
    for name in inputs:
        model = open_text(HEAD + text.format(input=name), "folded")
        compiled = dovetail.compile(model, "host", verify=True)
        assert [node.op_type for node in compiled.model.graph][1:] == ["Relu"]
        assert compiled.verification.outputs[0].snr_db > 100


def test_a_folded_weight_in_a_body_leaves_the_names_outside_alone():
    text = """g (float[1,2,4,4] x, bool c, float[1] bn_weight) => (float[1,2,4,4] y, float[1] z) {
      [choice] y = If (c) <
        then_branch = t () => (float[1,2,4,4] t0)
          <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] s = {1, 2}, float[2] b = {3, 4}, float[2] m = {0, 1},
           float[2] v = {1, 2}> {
          [conv] r = Conv (x, w)
          [bn] t0 = BatchNormalization (r, s, b, m, v)
        },
        else_branch = e () => (float[1,2,4,4] e0) { e0 = Relu (x) }
      >
      z = Relu (bn_weight)
    }"""
    compiled = dovetail.compile(
        open_text(HEAD + text, "body"),
        "host",
        data={"x": np.ones((1, 2, 4, 4), np.float32), "c": np.array(True), "bn_weight": np.ones(1, np.float32)},
        verify=True,
    )
    assert "BatchNormalization" not in {node.op_type for node in compiled.model.nodes()}
    assert compiled.verification.outputs[0].snr_db > 100


def test_versions_of_a_weight_leave_the_names_of_values_alone(fp16):
    """`w` is read in float16 and in float32, beside values called `w_float16` and, in a body, `w_float16_1`."""
    model = open_text(HEAD + READ_TWICE, "versions")
    compiled = dovetail.compile(model, "test-fp16", plugins=fp16, verify=True)
    names = [name for _, graph in compiled.model.graphs() for name in graph.initializers]
    assert "w" in names and "w_float16_2" in names
    assert compiled.verification.outputs[0].snr_db > 40


def test_a_pass_that_folds_twice_gets_two_names(fp16):
    ctx = Context(plugins=fp16)
    model = open_text(HEAD + NORMALIZED.format(input="q"), "twice")
    names = ctx.analysis(FreshNames, model)
    assert names.fresh("bn_weight") == "bn_weight"
    Pipeline.parse("fold-batchnorm", fp16.registry).run(model, ctx)
    assert "bn_weight_1" in model.graph.initializers


def test_a_builder_never_gives_a_name_twice():
    builder = Builder()
    values = [builder.input(name, "float32", [1]) for name in ("x", "x", "x_1", "x")]
    assert len({value.name for value in values}) == 4
