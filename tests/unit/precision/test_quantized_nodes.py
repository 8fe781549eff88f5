"""Nodes that a backend takes in integers get a choice of formats, from the file to the plan."""

import dovetail
import pytest
from dovetail.compiler import plan_of
from dovetail.errors import DovetailError
from dovetail.passes import Context, Pipeline, Request
from dovetail.planning import Plan
from dovetail_onnx.opening import open_text

FILE = """
backend: acme-npu
device: npu
opset: 13..26
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric, observer: kl}
  q: {dtype: [int8, int16], scheme: symmetric}
  w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
  w8t: {dtype: int8, scheme: symmetric}
  b32: {dtype: int32, scale: X*W}
ops:
  Conv: {role: active, types: {X: q8, W: w8, B: b32, Y: q8}}
  Gemm: {role: active, types: {A: q8, B: w8t, C: b32, Y: q8}}
  Mul: {role: active, types: {A: q, B: q, C: [q, float32]}}
  MaxPool: {role: passive, types: q}
  Concat: {role: passive, types: {in0: q, in1: q, out0: q}, same_scale: true}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""

NET = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,8,4,4] y) <float[4,4,3,3] w, float[4] b> {
  [conv] a = Conv <pads = [1,1,1,1]> (x, w, b)
  [pool] p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (a)
  [again] c = Conv <pads = [1,1,1,1]> (p, w, b)
  [both] d = Concat <axis = 1> (p, c)
  [out] y = Tanh (d)
}"""


@pytest.fixture
def plan(with_backend):
    """The plan of a model in ONNX text; `changes` replace text of the file."""

    def make(text=NET, changes=(), **request):
        file = FILE
        for before, after in changes:
            file = file.replace(before, after)
        return dovetail.plan(open_text(text, "net"), "acme-npu", plugins=with_backend(file), **request)

    return make


def placed(plan):
    """Backend, precision and ports of every node."""
    return {
        node.name: f"{node.backend}/{node.precision}" + "".join(f" {p}:{f}" for p, f in sorted(node.ports.items()))
        for node in plan.nodes
    }


EXPECTED = {
    "conv": "acme-npu/int8[symmetric] B:int32[symmetric,axis=0] W:int8[symmetric,axis=0]",
    "pool": "acme-npu/int8[symmetric]",
    "again": "acme-npu/int8[symmetric] B:int32[symmetric,axis=0] W:int8[symmetric,axis=0]",
    "both": "acme-npu/int8[symmetric]",
    "out": "host/float32",
}


@pytest.mark.parametrize("solver", ["forward", "fixpoint", "min-cut"])
def test_a_net_in_integers(plan, solver):
    """A bias has a scale per channel, because the weights do; passive nodes have the scale of another observer."""
    found = plan(solver=solver)
    assert placed(found) == EXPECTED
    joins = [(join.value, str(join.held), str(join.wanted), join.kind) for join in found.joins]
    assert joins == [
        ("x", "float32", "int8[symmetric]", "quantize"),
        ("a", "int8[symmetric]", "int8[symmetric]", "requantize"),
        ("p", "int8[symmetric]", "int8[symmetric]", "requantize"),
        ("c", "int8[symmetric]", "int8[symmetric]", "requantize"),
        ("d", "int8[symmetric]", "float32", "dequantize"),
    ]


def test_the_plan_reads_back_and_replays(plan, with_backend, tmp_path):
    first = plan(solver="min-cut", pins="again=host")
    assert placed(first)["again"] == "host/float32"
    first.save(tmp_path / "plan.yaml")
    loaded = Plan.load(tmp_path / "plan.yaml")
    assert placed(loaded) == placed(first) and loaded.joins == first.joins
    model, ctx = open_text(NET, "net"), Context(Request.of("acme-npu", plan=loaded), plugins=with_backend(FILE))
    Pipeline.parse("normalize,edge-kinds,place,assign-types", ctx.registry).run(model, ctx)
    assert placed(plan_of(model, ctx)) == placed(first)


def test_a_bias_follows_weights_with_one_scale(plan):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[2,4] x) => (float[2,3] y) <float[4,3] w, float[3] b> { [dense] y = Gemm (x, w, b) }"""
    assert placed(plan(text)) == {"dense": "acme-npu/int8[symmetric] C:int32[symmetric]"}


PINS = [
    ("mul=acme-npu/int16[symmetric]", "acme-npu/int16[symmetric]"),
    ("mul=acme-npu/A:int16[symmetric],C:int8[symmetric]", "acme-npu/int8[symmetric] A:int16[symmetric]"),
    ("mul=acme-npu/C:float32", "acme-npu/float32 A:int8[symmetric] B:int8[symmetric]"),
    ("mul=host/float32", "host/float32"),
]
MUL = """<ir_version: 10, opset_import: ["": 21]>
g (float[2,4] x, float[2,4] z) => (float[2,4] y) { [mul] y = Mul (x, z) }"""


@pytest.mark.parametrize(("pin", "expected"), PINS)
def test_pins_choose_formats_per_port(plan, pin, expected):
    assert placed(plan(MUL, pins=pin)) == {"mul": expected}


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        ("mul=acme-npu/int4[symmetric]", "acme-npu cannot compute 'mul' in int4[symmetric] (did you mean"),
        ("mul=acme-npu/A:int8[asymmetric]", "acme-npu cannot compute 'mul' in int8[asymmetric]"),
        ("mul=acme-npu/D:int8[symmetric]", "'mul' has no port 'D'"),
        ("mul=acme-npu/int8", "unknown precision 'int8'"),
        ("mul=acme-npu/A:int9[symmetric]", "there is no element type 'int9' (did you mean"),
    ],
)
def test_a_pin_to_a_format_that_is_not_offered_is_an_error(plan, pin, says):
    with pytest.raises(DovetailError) as caught:
        plan(MUL, pins=pin)
    assert says in caught.value.message
    assert "int8[symmetric]" in caught.value.hint or "its ports are A, B, C" in caught.value.hint


def test_a_scale_that_ports_share_is_one_format(plan):
    """Ports that are named apart choose apart, unless they share their scale."""
    pin = "both=acme-npu/in1:int16[symmetric]"
    shared = placed(plan(pins=pin))["both"]
    assert shared == "acme-npu/int16[symmetric]"
    apart = placed(plan(changes=[(", same_scale: true", "")], pins=pin))["both"]
    assert apart == "acme-npu/int8[symmetric] in1:int16[symmetric]"


def test_a_node_without_a_combination_goes_elsewhere(plan):
    """The bias has no format of which the scales follow those of weights in groups."""
    groups = ("granularity: channel, axis: 0}", "granularity: group, axis: 1, group: 2}")
    found = plan(changes=[groups])
    assert placed(found)["conv"] == "host/float32"
    why = [remark.why for remark in found.remarks if remark.node == "conv" and remark.rule == "no-type"]
    assert why == ["not on acme-npu: no combination of formats fits its ports B, W, X, Y"]


def test_a_node_that_is_listed_high_leaves_a_backend_of_integers(plan):
    assert placed(plan(high="conv"))["conv"] == "host/float32"


def test_a_plan_in_integers_that_nothing_carries_out_is_an_error(with_backend):
    model, ctx = open_text(NET, "net"), Context(Request.of("acme-npu"), plugins=with_backend(FILE))
    with pytest.raises(DovetailError, match=r"'conv' \(Conv\) is planned in int8\[symmetric\] on acme-npu") as caught:
        Pipeline.parse("normalize,edge-kinds,place,assign-types,join", ctx.registry).run(model, ctx)
    assert "pip install dovetail-quantize" in caught.value.hint
