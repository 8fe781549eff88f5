"""In how many bits values are held: eight by default, sixteen where it is asked for and all of a group can."""

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail.compiler import Driver
from dovetail.passes import Context, Request
from dovetail.plugin import load_plugins
from dovetail_bpu_int8.bpu_requests import ALL, MODEL_OUTPUTS, format_request, recorded_entry
from dovetail_onnx.opening import open_text

WEIGHTS = "<float[8,8,3,3] w, float[8,8,1,1] v, float[8] b, float half>"
HEADER = f"(float[1,8,16,16] x) => (float[1,8,16,16] y) {WEIGHTS} "
RESIDUAL = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [act] r = Relu (a) [two] c = Conv (r, v)
                [add] d = Add (c, r) [sig] e = Sigmoid (d) [three] y = Conv (e, v) }"""
POOL = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b)
            [pool] p = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1]> (a) [two] y = Conv (p, v) }"""


def model_of(body):
    model = open_text(f'<ir_version: 10, opset_import: ["": 21]>\ng {HEADER}{body}', "m")
    rng = np.random.default_rng(1)
    for value in model.graph.initializers.values():
        array = rng.standard_normal([int(extent) for extent in value.shape]).astype(np.float32)
        value.const_value = ir.tensor(array, name=value.name)
    return model


@pytest.fixture
def planner():
    def make(body, *requests, march="bayes", pins=(), data=None):
        request = Request.of(
            f"bpu-int8:march={march}",
            pins=pins,
            data=data,
            options={"bpu": {"requests": [recorded_entry(format_request(*one)) for one in requests]}},
        )
        ctx = Context(request, plugins=load_plugins())
        ctx.load_backends()
        return Driver(model_of(body), ctx)

    return make


@pytest.fixture
def widths(planner):
    """What each node reads and computes, as `one:8>16`; `widths.why` has the remarks on what was asked."""

    def ask(body, *requests, **rest):
        plan = planner(body, *requests, **rest).decide()[1]
        rules = ("int16", "float16", "width-fallback", "request-lost", "users-choice")
        ask.why = {remark.node: remark.why for remark in plan.remarks if remark.rule in rules}
        found = []
        for node in plan.nodes:
            out = str(node.precision).partition("[")[0]
            into = str(node.ports.get("X", node.precision)).partition("[")[0]
            found.append(f"{node.name}:{into.removeprefix('int')}>{out.removeprefix('int')}")
        return " ".join(found)

    return ask


def test_eight_bits_and_sums_in_thirty_two_at_the_end(widths):
    assert widths(RESIDUAL) == "one:8>8 act:8>8 two:8>8 add:8>8 sig:8>8 three:8>32"
    assert widths.why == {}


CASES = {
    "everything": (RESIDUAL, [(ALL, "all", "int16")], "one:16>16 act:16>16 two:16>16 add:16>16 sig:16>16 three:16>32"),
    "an input brings along what holds the same values": (
        RESIDUAL, [("two", "i", "int16", "in")], "one:8>16 act:16>16 two:16>16 add:16>16 sig:16>16 three:16>32",
    ),
    "an input of the model": (
        RESIDUAL, [("one", "i", "int16", "in0")], "one:16>8 act:8>8 two:8>8 add:8>8 sig:8>8 three:8>32",
    ),
    "by operator": (POOL, [("type:Conv", "t", "int16")], "one:16>8 pool:8>8 two:8>32"),
    "an output of the model gives up its sums": (
        RESIDUAL, [(ALL, "m", "int16", MODEL_OUTPUTS)], "one:8>8 act:8>8 two:8>8 add:8>8 sig:8>8 three:8>16",
    ),
    "an output of eight bits": (POOL, [(ALL, "m", "int8", MODEL_OUTPUTS)], "one:8>8 pool:8>8 two:8>8"),
    "a later request wins": (
        RESIDUAL, [(ALL, "all", "int16"), ("two", "later", "int8", "in")],
        "one:16>8 act:8>8 two:8>8 add:8>8 sig:8>8 three:8>32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_asked(widths, case):
    body, requests, expected = CASES[case]
    assert widths(body, *requests) == expected


def test_a_fallback_names_who_asked_and_who_cannot(planner):
    plan = planner(POOL, ("two", "config.yaml:7", "int16", "in")).decide()[1]
    (said,) = [remark for remark in plan.remarks if remark.node == "two" and remark.rule == "width-fallback"]
    assert said.why == (
        "not in int16, although config.yaml:7 asks for it: X stays in int8: 'pool' (AveragePool), which holds the same "
        "values, has no int16 at Y"
    )
    assert said.because == ("pool",)
    assert said.source.startswith("bpu_bayes.yaml:")


def test_a_fallback_is_a_note_of_the_result(planner):
    data = {"x": np.ones((1, 8, 16, 16), np.float32)}
    compiled = planner(POOL, ("two", "config.yaml:7", "int16", "in"), data=data).compile()
    assert "1 node cannot have the width that is asked for: 'two'" in compiled.notes()


ATTENTION = """{ [one] a = Conv <pads = [1,1,1,1]> (x, w, b) [qk] m = MatMul (a, a) [scale] s = Mul (m, half)
                 [soft] p = Softmax <axis = 3> (s) [pv] q = MatMul (a, p) [two] y = Conv (q, v) }"""


@pytest.mark.parametrize(
    ("pins", "given"),
    [(("soft=bpu-int8",), ""), (("soft=bpu-int8",), "in"), (("soft=bpu-int8",), "all")],
    ids=["nothing", "input", "both"],
)
def test_a_softmax_behind_a_scalar_product_reads_sixteen_bits(planner, pins, given):
    """The product is a unit convolution: what it reads keeps eight bits, and so does what the next product reads."""
    requests = [("soft", "config.yaml:7", "int16", given)] if given else []
    data = {"x": np.ones((1, 8, 16, 16), np.float32)}
    compiled = planner(ATTENTION, *requests, pins=pins, data=data).compile()
    ports = {node.name: node.ports for node in compiled.plan.nodes}
    held = {name: compiled.plan.values[name][0]["format"].partition("[")[0] for name in ("m", "s", "p")}
    assert held == {"m": "int8", "s": "int16" if given else "int8", "p": "int8"}, ports
    note = "1 node cannot have the width that is asked for: 'soft'"
    assert compiled.notes().count(note) == (given == "all")


def test_x3_has_no_sixteen_bits(widths):
    assert widths(RESIDUAL, ("two", "i", "int16"), march="bernoulli2").split()[2] == "two:8>8"
    assert "has no int16" in widths.why["two"]


def test_float16_is_for_single_nodes_on_nash(widths):
    assert widths(RESIDUAL, ("two", "f", "float16"), march="nash").split()[1:4] == [
        "act:8>8",
        "two:float16>float16",
        "add:8>8",
    ]
    assert "cannot be float16" in (widths(RESIDUAL, ("two", "f", "float16")), widths.why["two"])[1]


def test_a_node_that_shall_be_on_the_cpu_goes_to_whoever_takes_it(planner):
    plan = planner(RESIDUAL, ("sig", "run_on_cpu")).decide()[1]
    assert plan.named("sig").backend == "host"
    (said,) = [remark for remark in plan.remarks if remark.rule == "users-choice"]
    assert said.why == "not on bpu-int8: run_on_cpu says so"


@pytest.mark.parametrize("pin", ["two=bpu-int8/X:int16[symmetric]", "two=bpu-int8/int16[symmetric]"])
def test_a_pin_brings_its_neighbors_along(widths, pin):
    assert widths(RESIDUAL, pins=(pin,)) == "one:8>16 act:16>16 two:16>16 add:16>16 sig:16>16 three:16>32"


def test_a_pin_without_a_format_has_the_width_of_its_neighbors(widths):
    found = widths(RESIDUAL, ("two", "i", "int16", "in"), pins=("add=bpu-int8", "three=bpu-int8"))
    assert found == "one:8>16 act:16>16 two:16>16 add:16>16 sig:16>16 three:16>32"


def test_a_request_for_a_node_that_preparing_removed_is_remarked(planner):
    body = RESIDUAL.replace("[three] y = Conv (e, v)", "[gone] f = Identity (e) [three] y = Conv (f, v)")
    plan = planner(body, ("gone", "config.yaml:9", "int16")).decide()[1]
    why = "config.yaml:9: 'gone' is gone"
    assert any(remark.rule == "request-lost" and why in remark.why for remark in plan.remarks)


def test_sixteen_bits_lose_less_and_a_replay_gives_the_same(planner):
    image = np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype(np.float32)
    data = {"x": image}
    exact = dovetail.compile(model_of(RESIDUAL), "host").run(data)["y"]
    narrow = planner(RESIDUAL, data=data).compile().run(data)["y"]
    wide = planner(RESIDUAL, (ALL, "all", "int16"), data=data).compile()
    result = wide.run(data)["y"]
    assert np.abs(result - exact).mean() < 0.5 * np.abs(narrow - exact).mean()
    again = dovetail.compile(model_of(RESIDUAL), plan=wide.plan)
    assert not [remark for remark in again.remarks if remark.kind == "failed"]
    np.testing.assert_array_equal(again.run(data)["y"], result)
