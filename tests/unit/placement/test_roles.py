"""The strategy `roles`: who stays, who is given back when neighbors are lost, and what might help."""

import dovetail
import pytest

FILE = """
backend: npu
device: npu
opset: 13..26
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric}
  w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
ops:
  Conv: {role: active, types: {X: q8, W: w8, Y: q8}}
  Relu, Mul: {role: active, types: q8}
  MaxPool, Concat, Transpose: {role: passive, types: q8, same_scale: consumer}
  Softmax: {role: manual, types: q8}
  Abs: {types: q8}
place: {strategy: roles%s}
emit: {engines: [onnxruntime-cpu]}
"""
HEAD = '<ir_version: 10, opset_import: ["": 21]> g (float[1,4,8,8] x) => (float[1,4,h,8] y) <float[4,4,1,1] w> '


@pytest.fixture
def placed(with_backend):
    """The names of the nodes on the backend, for a body in ONNX text."""

    def make(body, options=", ends: [Conv]", **request):
        from dovetail_onnx.opening import open_text

        plan = dovetail.plan(open_text(HEAD + body, "m"), "npu", plugins=with_backend(FILE % options), **request)
        make.remarks = {remark.node: remark for remark in plan.remarks if remark.kind == "missed"}
        return " ".join(node.name for node in plan.nodes if node.backend == "npu")

    return make


CHAIN = """{
  [one] a = Conv (x, w)
  [turn] b = Transpose <perm = [0,1,3,2]> (a)
  [pool] c = MaxPool <kernel_shape = [1,1]> (b)
  [two] d = Conv (c, w)
  [act] y = Relu (d)
}"""


def test_passive_nodes_stay_between_active_ones(placed):
    assert placed(CHAIN) == "one turn pool two"
    assert placed.remarks["act"].rule == "tail"


def test_any_active_node_may_end_a_region_where_the_file_says_so(placed):
    assert placed(CHAIN, "") == "one turn pool two act"


@pytest.mark.parametrize(("pin", "expected"), [("two=host", "one"), ("one=host", "two"), ("turn=host", "one two")])
def test_a_pin_that_takes_a_neighbor_away_gives_back_what_stood_beside_it(placed, pin, expected):
    assert placed(CHAIN, pins=(pin,)) == expected
    assert "is passive" in placed.remarks["pool"].why


def test_a_pinned_node_stays_where_it_is_and_counts_for_its_neighbors(placed):
    assert placed(CHAIN, pins=("act=npu",)) == "one turn pool two act"


def test_every_input_of_a_passive_node_must_come_from_the_backend(placed):
    body = """{
      [one] a = Conv (x, w)
      [half] b = Concat <axis = 2> (a, x)
      [two] c = Conv (b, w)
      [whole] d = Concat <axis = 2> (a, c)
      [three] y = Conv (d, w)
    }"""
    assert placed(body) == "one two whole three"
    assert placed.remarks["half"].why.endswith("it reads 'x', an input of the model")


@pytest.mark.parametrize(("operator", "rule"), [("Softmax", "manual"), ("Abs", "no-role"), ("Tanh", "not-supported")])
def test_what_has_no_role_stays_away(placed, operator, rule):
    assert placed(f"{{ [one] a = Conv (x, w) [act] b = {operator} (a) [two] y = Conv (b, w) }}") == "one two"
    assert placed.remarks["act"].rule == rule


def test_control_flow_stays_away(placed):
    body = """{ [one] a = Conv (x, w) [c] f = ReduceMax <keepdims = 0> (x) [d] g = Cast <to = 9> (f)
      [if] y = If (g) <then_branch = t () => (float[1,4,8,8] p) { p = Relu (a) },
                       else_branch = e () => (float[1,4,8,8] q) { q = Neg (a) }> }"""
    assert placed(body) == "one"
    assert placed.remarks["if"].rule in ("control-flow", "not-supported")
