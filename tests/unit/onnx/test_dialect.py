"""A model built in memory gets the dialect of an installed front end, which checks what core cannot know."""

import onnx.parser
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Model, verify_model
from dovetail.passes import Context, Pipeline
from dovetail.plugin import load_plugins
from dovetail_onnx.dialect import OnnxDialect
from dovetail_onnx.type_check import body_flows

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'
UNKNOWN_ATTRIBUTE = "g (float[2] x) => (float[2] y) { [relu] y = Relu <k = 1> (x) }"
BRANCHES = """g (bool c, float[2] x, float16[2] h) => (float[2] y) {
  [choice] y = If (c) <then_branch = t () => (float[2] p) { p = Neg (x) },
                       else_branch = e () => (float16[2] q) { q = Neg (h) }> }"""


def in_memory(body):
    return Model(ir.from_proto(onnx.parser.parse_model(HEAD + body)))


def test_a_pipeline_gives_the_dialect_and_checks_the_source():
    model = in_memory(UNKNOWN_ATTRIBUTE)
    assert (model.dialect, model.source) == (None, None)
    with pytest.raises(DovetailError, match="node 'relu' .Relu. has an attribute 'k'"):
        Pipeline([]).run(model, Context(plugins=load_plugins()))
    assert isinstance(model.dialect, OnnxDialect)


def test_without_a_front_end_nothing_is_known_of_operators():
    for text in (UNKNOWN_ATTRIBUTE, BRANCHES):
        model = in_memory(text)
        assert not Pipeline([]).run(model, Context()).changed
        verify_model(model)


def test_the_dialect_knows_what_passes_out_of_bodies():
    model = in_memory(BRANCHES)
    model.dialect = OnnxDialect()
    with pytest.raises(DovetailError, match=r"If 'choice': else_branch and output: 'q' is tensor\(float16\)"):
        verify_model(model)
    assert [what for what, _, _ in body_flows(model.graph[0])] == [
        "then_branch and output",
        "else_branch and output",
    ]


def test_copies_keep_the_dialect():
    model = in_memory(BRANCHES)
    model.dialect = OnnxDialect()
    assert model.clone().dialect is model.dialect
