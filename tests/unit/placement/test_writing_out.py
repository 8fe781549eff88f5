"""Operators of ONNX Runtime that no backend takes are written out for one that takes the nodes in their place."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

FILE = """
backend: {name}
device: npu
opset: 17..24
precision: {{low: float16, high: float32}}
policies: fp16
types: {{f: [float16, float32]}}
ops: {{{ops}}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]}}
"""
MODEL = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
g (float[2,8] x) => (float[2,8] y) <float[8,8] w> {
  [first] h = MatMul(x, w)
  [gate] g = com.microsoft.QuickGelu(h)
  [second] y = MatMul(g, w)
}"""
PARTS = '"MatMul, Mul, Sigmoid": {types: f}'


def file(name="npu", ops=PARTS):
    return FILE.format(name=name, ops=ops)


@pytest.fixture
def planned(with_backend):
    def make(*files, model=MODEL, backends="npu", **request):
        return dovetail.plan(open_text(model, "model"), backends, plugins=with_backend(*files), **request)

    return make


def placed(plan):
    return [(node.op_type, node.backend) for node in plan.nodes]


def said(plan):
    return [(remark.node, remark.why) for remark in plan.remarks if remark.rule == "write-out"]


WRITTEN = [(operator, "npu") for operator in ("MatMul", "Mul", "Sigmoid", "Mul", "MatMul")]
KEPT = [("MatMul", "npu"), ("QuickGelu", "host"), ("MatMul", "npu")]


def test_what_results_is_placed(planned):
    plan = planned(file())
    assert placed(plan) == WRITTEN
    why = "no chosen backend takes com.microsoft.QuickGelu; it is written out for npu: Mul, Sigmoid"
    assert said(plan) == [("gate", why)]
    assert [edit["kind"] for edit in plan.edits] == ["write-out"]


def test_the_result_computes_the_same(with_backend):
    compiled = dovetail.compile(open_text(MODEL, "model"), "npu", plugins=with_backend(file()), verify=True)
    assert "QuickGelu" not in [node.op_type for node in compiled.model.graph]
    assert not compiled.verification.broken


NORMALIZED = """<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
g (float[2,8] x, float[2,8] skip) => (float[2,8] z) <float[8] scale = {1, 1, 1, 1, 1, 1, 1, 1}> {
  [norm] OUTPUTS = com.microsoft.SkipLayerNormalization(x, skip, scale)
  [last] z = Relu(READ)
}"""


@pytest.mark.parametrize(
    ("outputs", "read"),
    [
        ("unread, mean, deviation, sum", "sum"),
        ('unread, "", "", sum', "sum"),
    ],
)
def test_outputs_that_nothing_reads_are_not_computed(with_backend, outputs, read):
    model = open_text(NORMALIZED.replace("OUTPUTS", outputs).replace("READ", read), "model")
    parts = '"Add, Sub, Mul, Div, Sqrt, Relu, ReduceMean, LayerNormalization": {types: f}'
    compiled = dovetail.compile(model, "npu", plugins=with_backend(file(ops=parts)), verify=True)
    assert {node.backend for node in compiled.plan.nodes} == {"npu"}
    assert "SkipLayerNormalization" not in [node.op_type for node in compiled.model.graph]
    assert not compiled.verification.broken


def test_nothing_is_written_out_for_an_operator_that_nothing_reads(planned):
    model = NORMALIZED.replace("OUTPUTS", "unread").replace("READ", "x")
    assert said(planned(file(ops='"Relu": {types: f}'), model=model)) == []


def test_a_replayed_plan_writes_the_same_out(planned, with_backend):
    plan = planned(file())
    again = dovetail.compile(open_text(MODEL, "model"), "npu", plugins=with_backend(file()), plan=plan)
    assert placed(again.plan) == WRITTEN
    assert [edit["kind"] for edit in again.plan.edits] == ["write-out"]


def test_a_backend_that_takes_the_operator_keeps_it(planned):
    plan = planned(file(ops=PARTS + ', "com.microsoft::QuickGelu": {types: f}'))
    assert placed(plan) == [("MatMul", "npu"), ("QuickGelu", "npu"), ("MatMul", "npu")]
    assert said(plan) == []


def test_a_later_backend_that_takes_the_operator_gets_it(planned):
    other = file("other", '"com.microsoft::QuickGelu": {types: f}')
    plan = planned(file(), other, backends=["npu", "other"])
    assert placed(plan) == [("MatMul", "npu"), ("QuickGelu", "other"), ("MatMul", "npu")]


def test_an_operator_that_is_missing_leaves_it_to_the_host(planned):
    plan = planned(file(ops='"MatMul, Mul": {types: f}'))
    assert placed(plan) == KEPT
    assert said(plan) == []


def test_a_node_that_cannot_be_written_out_says_why(planned):
    model = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[2,8] x, int32 at) => (y) { [wider] y = com.microsoft.ExpandDims(x, at) }"""
    why = "not written out: ExpandDims is not written in standard ONNX: its axis is not constant"
    assert said(planned(file(), model=model)) == [("wider", why)]


def test_a_part_that_is_declined_undoes_it(planned):
    """The list has the operator, and its limit says no: the next round begins with the original node."""
    limited = '"MatMul, Mul": {types: f}, Sigmoid: {types: f, limits: {X.rank: 4..4}}'
    plan = planned(file(ops=limited))
    assert placed(plan) == KEPT
    ((_, why),) = said(plan)
    assert "com.microsoft.QuickGelu is not written out: npu leaves its Sigmoid" in why
    assert plan.edits == []


def test_a_pin_to_the_host_is_obeyed(planned):
    assert placed(planned(file(), pins=["gate=host"])) == KEPT


def test_mixtures_of_experts_stay_unless_asked_for(planned):
    """Standard ONNX computes all experts for every token."""
    model = """<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    g (float[2,8] x, float[2,4] r) => (float[2,8] y) <float[4,6,8] a, float[4,8,6] b> {
      [experts] y = com.microsoft.MoE <k = 1> (x, r, a, , b)
    }"""
    names = "MatMul, Mul, Add, Relu, Softmax, TopK, GatherElements, ScatterElements, Transpose, Reshape, Unsqueeze, "
    ops = '"' + names + 'ReduceSum, Div, Shape": {}'
    assert placed(planned(file(ops=ops), model=model)) == [("MoE", "host")]
    asked = planned(file(ops=ops), model=model, edits=["write-out=experts"])
    assert "MoE" not in [operator for operator, _ in placed(asked)]


def test_an_edit_at_another_operator_is_refused(planned):
    with pytest.raises(DovetailError, match="write-out at 'first': MatMul has no decomposition"):
        planned(file(), edits=["write-out=first"])
