"""Manual choices win, and are held to the same rules."""

from pathlib import Path

import pytest
from dovetail import api
from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.passes import BackendChoice, Context, PinOrigin, Request
from dovetail.planning import assumed
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x, bool c) => (float[4,8] y, float[4,8] z, float[4,8] q) <float[8,8] w> {
  [low] a = MatMul (x, w)
  [pass] b = Tanh (a)
  [prod] p = ReduceProd <keepdims = 1> (b)
  [add] y = Add (b, p)
  [again] q = MatMul (b, w)
  [choice] z = If (c) <
    then_branch = t () => (float[4,8] t0) { [inner] t0 = MatMul (b, w) },
    else_branch = e () => (float[4,8] e0) { e0 = Relu (b) }
  >
}"""


@pytest.fixture
def placed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text(TEXT)

    def plan(*pins):
        nodes = api.plan("m.onnxtxt", ["cpu-bf16"], pins=pins).nodes
        return {node.name: f"{node.backend}/{node.precision}" for node in nodes}

    return plan


LOW, HIGH, HOST = "cpu-bf16/bfloat16", "cpu-bf16/float32", "host/float32"


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ([], {"low": LOW, "pass": LOW, "prod": HIGH, "add": HIGH, "choice": HIGH, "inner": LOW}),
        (["low=host"], {"low": HOST, "pass": HIGH, "add": HIGH}),
        (["low=cpu-bf16/float32"], {"low": HIGH, "pass": HIGH}),
        (["prod=cpu-bf16/bfloat16"], {"prod": LOW, "add": LOW}),
        (["type:*=host"], None),
        (["*=host"], {"low": HOST, "pass": HOST, "prod": HOST, "add": HOST, "choice": HOST, "inner": HOST}),
        (["*=host", "low=cpu-bf16"], {"low": LOW, "pass": HOST}),
        # one backend runs a control-flow node with its bodies, whichever of them is pinned
        (["choice=host"], {"choice": HOST, "inner": HOST}),
        (["inner=host"], {"choice": HOST, "inner": HOST}),
        (["inner=cpu-bf16/float32"], {"choice": HIGH, "inner": HIGH}),
    ],
)
def test_pins(placed, pins, expected):
    if expected is None:
        with pytest.raises(DovetailError, match="no node matches"):
            placed(*pins)
        return
    found = placed(*pins)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        ("pass=cpu-bf16/float64", "cpu-bf16 cannot compute 'pass' in float64"),
        ("low=npu", "'npu', which was not chosen"),
        ("choice=host inner=cpu-bf16", "belong to 'choice', which one backend runs whole"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(placed, pin, says):
    with pytest.raises(DovetailError, match=says):
        placed(*pin.split())


REFUSED = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x, bool c) => (float[4,8] y, float[4,8] z) <float ratio = {0.5}, bool training = {1}> {
  [drop] d = Dropout (x, ratio, training)
  [low] y = Relu (d)
  [choice] z = If (c) <
    then_branch = t () => (float[4,8] t0) { [inner] t0 = Dropout (x, ratio, training) },
    else_branch = e () => (float[4,8] e0) { [other] e0 = Relu (x) }
  >
}"""


def plan_of_a_file(node, **origin):
    """The plan with a pin that line 7 of a file asks for."""
    pin = f"name:{node}=cpu-bf16"
    origins = {pin: PinOrigin("npu.yaml:7, on_npu", **origin)}
    request = Request((BackendChoice("cpu-bf16"),), pins=(pin,), pin_origins=origins)
    ctx = Context(request, plugins=load_plugins())
    ctx.load_backends()
    return Driver(open_text(REFUSED, "m"), ctx).decide()[1]


@pytest.mark.parametrize(
    ("pinned", "declined", "elsewhere"),
    [
        ("drop", ["drop"], {"drop": "host", "low": "cpu-bf16"}),
        # of control flow, one node that is refused takes all others along
        ("inner", ["choice"], {"choice": "host", "inner": "host", "other": "host"}),
        ("low", [], {"drop": "host", "low": "cpu-bf16"}),
    ],
)
def test_a_pin_of_a_file_may_be_declined(pinned, declined, elsewhere):
    plan = plan_of_a_file(pinned, may_be_declined=True, if_declined="its tool warns")
    assert {node.name: node.backend for node in plan.nodes if node.name in elsewhere} == elsewhere
    said = [remark for remark in plan.remarks if remark.rule == "declined"]
    assert len([remark for remark in said if remark.node]) == len(declined)
    for remark in said:
        assert "npu.yaml:7, on_npu" in remark.why and remark.why.endswith("; its tool warns")
    assert len(assumed(said)) == len(declined)  # one note, whatever the number of nodes


def test_a_pin_of_a_file_that_must_hold_is_an_error_with_its_line():
    with pytest.raises(DovetailError, match=r"npu.yaml:7, on_npu .*cpu-bf16 refuses 'drop'"):
        plan_of_a_file("drop")


def test_the_order_of_backends_is_the_order_of_preference(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text(TEXT)
    for order, expected in ((["cpu-bf16", "host"], "cpu-bf16"), (["host", "cpu-bf16"], "cpu-bf16")):
        plan = api.plan("m.onnxtxt", order)  # the host takes what is left, wherever it is named
        assert plan.nodes[0].backend == expected
