"""What a backend file says of regions as a whole decides where their nodes go."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

FILE = """
backend: grouped
device: npu
opset: 13..26
dynamic: accept
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32]}
ops: {"Add, Relu, Tanh, MatMul, If, MaxPool": {types: f}}
emit: {engines: [onnxruntime-cpu]}
"""
PLACE = "place: {strategy: autocast}\n"

TWO = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x) => (float[4] y) { [first] a = Relu (x)  [second] y = Tanh (a) }"""

# Two regions of `grouped` with two and three nodes, and one of the host between them.
APART = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,4] x) => (float[4,4] y) <float[4,4] w> {
  [one] a = Relu (x)  [two] b = Tanh (a)
  [host] c = Erf (b)
  [three] d = MatMul (c, w)  [four] e = Relu (d)  [five] y = Add (e, c)
}"""

BRANCH = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x, bool c) => (float[4] y) {
  [choice] y = If (c) <
    then_branch = t () => (float[4] t0) { [inner] t0 = Relu (x) },
    else_branch = e () => (float[4] e0) { [other] e0 = Tanh (x) }
  >
}"""


@pytest.fixture
def plan(with_backend):
    def make(said, text=TWO, **request):
        return dovetail.plan(open_text(text, "model"), "grouped", plugins=with_backend(FILE + said), **request)

    return make


def on(plan, backend="grouped"):
    return {node.name for node in plan.nodes if node.backend == backend}


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("region: {limits: {nodes: ..0}}\n" + PLACE, set()),
        ("region: {limits: {nodes: ..1}}\n" + PLACE, {"first", "second"}),  # two regions
        ("region: {limits: {nodes: ..2}}\n" + PLACE, {"first", "second"}),
        ("region: {limits: {nodes: 2.., inputs: 1, outputs: 1, constants: 0}}\n" + PLACE, {"first", "second"}),
        ("region: {limits: {outputs: 2..}}\n" + PLACE, set()),
        ("region: {need: [MaxPool]}\n" + PLACE, set()),
        ("region: {need: [MaxPool, Tanh]}\n" + PLACE, {"first", "second"}),
        ("region: {limits: {nodes: 50..}}\n" + PLACE, set()),
        ("region: {limits: {nodes: 2..}}\n" + PLACE, {"first", "second"}),
    ],
)
def test_a_region_that_is_not_taken_goes_to_the_next_backend(plan, said, taken):
    assert on(plan(said)) == taken


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("region: {limits: {nodes: 3..}}\n" + PLACE, {"three", "four", "five"}),
        ("region: {need: [Tanh]}\n" + PLACE, {"one", "two"}),
        ("region: {limits: {constants: 1..}}\n" + PLACE, {"three", "four", "five"}),
        ("region: {limits: {inputs: ..0}}\n" + PLACE, set()),
    ],
)
def test_every_region_is_asked_by_itself(plan, said, taken):
    assert on(plan(said, APART)) == taken


def test_nodes_in_bodies_count(plan):
    assert on(plan("region: {limits: {nodes: 3}, need: [Tanh]}\n" + PLACE, BRANCH)) == {"choice", "inner", "other"}
    assert on(plan("region: {limits: {nodes: ..2}}\n" + PLACE, BRANCH)) == set()


def test_each_node_says_which_limit_sent_it_away(plan):
    remarks = plan("region: {limits: {nodes: 50..}}\n" + PLACE).remarks
    said = [remark for remark in remarks if remark.rule == "region"]
    assert {remark.node for remark in said} == {"first", "second"}
    assert said[0].why == (
        "not on grouped: it does not take the region from 'first' to 'second': nodes = 2; allowed: 50.."
    )
    assert said[0].source == "inline.yaml:11"


def test_a_pin_does_not_make_a_backend_take_a_region(plan):
    with pytest.raises(
        DovetailError, match=r"pin 'first=grouped': grouped refuses 'first': .*nodes = 1; allowed: 2\.\."
    ):
        plan("region: {limits: {nodes: 2..}}\n" + PLACE, pins=["first=grouped", "second=host"])


def test_the_result_of_a_refusal_runs(with_backend):
    plugins = with_backend(FILE + "region: {limits: {nodes: 3..}}\n" + PLACE)
    compiled = dovetail.compile(open_text(APART, "apart"), "grouped", plugins=plugins, verify=True)
    assert on(compiled.plan) == {"three", "four", "five"}
    assert not compiled.verification.broken


UNREAD = [
    (
        PLACE.replace("autocast}", "autocast, patience: 7}"),
        "inline.yaml:11: strategy 'autocast' does not read 'patience'",
    ),
    (
        PLACE.replace("autocast}", "autocast, min_region: 7}"),
        "does not read 'min_region' under place (did you mean 'regions'?)",
    ),
]


@pytest.mark.parametrize(("said", "says"), UNREAD)
def test_a_key_that_nothing_reads_is_an_error_with_its_line(plan, said, says):
    with pytest.raises(DovetailError) as caught:
        plan(said)
    assert says in str(caught.value)


def test_a_strategy_says_which_keys_it_reads(with_backend, tmp_path):
    (tmp_path / "patient_strategy.py").write_text(
        "from dovetail_placement.strategies.every_node import Autocast\n"
        "class Patient(Autocast):\n"
        "    place_keys = ('patience',)\n"
    )
    plugins = with_backend(FILE + "place: {strategy: patient, patience: 7}\n")
    plugins.registry.strategy("patient", "patient_strategy:Patient")
    assert on(dovetail.plan(open_text(TWO, "model"), "grouped", plugins=plugins)) == {"first", "second"}


CHAIN = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,4] x, float[4,4] z) => (float[4,4] y) <float[4,4] v, float[4,4] w> {
  [one] a = Relu (x)  [two] b = MatMul (a, v)  [three] c = Tanh (b)  [four] d = MatMul (c, w)  [five] y = Add (d, z)
}"""


@pytest.mark.parametrize(
    ("limits", "regions"),
    [
        ("nodes: ..2", [0, 0, 1, 1, 2]),
        ("nodes: ..4", [0, 0, 0, 0, 1]),
        ("constants: ..1", [0, 0, 0, 1, 1]),
        ("inputs: ..1", [0, 0, 0, 0, 1]),
        ("nodes: ..5", [0, 0, 0, 0, 0]),
        ("outputs: ..1", [0, 0, 0, 0, 0]),
    ],
)
def test_a_region_that_is_too_large_is_split(plan, limits, regions):
    """As long as possible each; the last node has two inputs by itself where one is allowed, and goes to the host."""
    found = plan(f"region: {{limits: {{{limits}}}}}\n" + PLACE, CHAIN)
    assert [node.region for node in found.nodes] == regions
    assert on(found) == {"one", "two", "three", "four"} | ({"five"} if "inputs" not in limits else set())


@pytest.mark.parametrize(
    ("most", "regions"),
    [
        (1, [0, 1, 2, 2, 2, 2, 2]),
        (2, [0, 0, 1, 1, 1, 1, 1]),
        (3, [0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_region_with_too_many_outputs_is_split(with_backend, most, regions):
    """A run may have more outputs on the way, as long as later nodes of it use them up."""
    file = FILE + f"unlisted: {{types: f}}\nregion: {{limits: {{outputs: ..{most}}}}}\n" + PLACE
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[4] x) => (float[4] u, float[4] v, float[4] y) {
      [one] u = Relu (x)  [two] v = Tanh (u)  [three] a = Abs (v)  [four] b = Neg (v)  [five] c = Exp (v)
      [add] d = Add (a, b)  [mul] y = Mul (d, c)
    }"""
    found = dovetail.plan(open_text(text, "model"), "grouped", plugins=with_backend(file))
    assert [node.region for node in found.nodes] == regions


def test_a_region_that_nobody_else_runs_stays(with_backend):
    """An operator of the vendor's own: the minimum sends nothing away that would then run nowhere."""
    file = FILE.replace("MaxPool", "com.acme::Fused") + "region: {limits: {nodes: 3..}}\n" + PLACE
    text = """<ir_version: 10, opset_import: ["": 22, "com.acme": 1]>
    g (float[4] x) => (float[4] y) <float[4] a> { [fused] a = com.acme.Fused (x)  [relu] y = Relu (a) }"""
    found = dovetail.plan(open_text(text, "model"), "grouped", plugins=with_backend(file))
    assert on(found) == {"fused", "relu"}
    (said,) = [remark.why for remark in found.remarks if remark.rule == "region"]
    assert said == "it stays on grouped, which alone runs it: nodes = 2; allowed: 3.."
