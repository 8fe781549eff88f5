"""A backend file limits how many regions a model has, and how many bytes of weights each holds."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

FILE = """
backend: budgeted
device: npu
opset: 13..26
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32]}
ops: {"Relu, Tanh, MatMul": {types: f}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""

# Four regions, divided by Erf on the host: a product of 2*4*64*8 operations, one of 2*4*8*8, an activation of 32
# elements, and one of 16.
FOUR = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,64] x) => (float[4,4] y) <float[64,8] v, float[8,8] w,
  int64[1] zero = {0}, int64[1] four = {4}, int64[1] last = {1}> {
  [large] a = MatMul (x, v)  [cut_1] b = Erf (a)
  [small] c = MatMul (b, w)  [cut_2] d = Erf (c)
  [wide] e = Relu (d)        [cut_3] f = Erf (e)
  [slice] h = Slice (f, zero, four, last)
  [narrow] y = Tanh (h)
}"""

# Weights of 64*64, 64*32 and 32*1 elements.
CHAIN = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,64] x) => (float[4,1] y) <float[64,64] u, float[64,32] v, float[32,1] w> {
  [one] a = MatMul (x, u)  [two] b = MatMul (a, v)  [again] c = Relu (b)  [three] y = MatMul (c, w)
}"""


@pytest.fixture
def plan(with_backend):
    def make(said, text=FOUR, **request):
        return dovetail.plan(open_text(text, "model"), "budgeted", plugins=with_backend(FILE + said), **request)

    return make


def on(plan):
    return {node.name for node in plan.nodes if node.backend == "budgeted"}


@pytest.mark.parametrize(
    ("count", "taken"),
    [
        (4, {"large", "small", "wide", "narrow"}),
        (3, {"large", "small", "wide"}),
        (2, {"large", "small"}),
        (1, {"large"}),
    ],
)
def test_the_regions_with_the_most_work_stay(plan, count, taken):
    assert on(plan(f"region: {{count: {count}}}\n")) == taken


def test_each_node_that_is_given_back_says_how_much_work_its_region_has(plan):
    said = {remark.node: remark for remark in plan("region: {count: 1}\n").remarks if remark.rule == "region-count"}
    assert {node: remark.why.rpartition("; ")[2] for node, remark in said.items()} == {
        "small": "this one has 512 multiplications and additions",
        "wide": "this one has 32 computed elements, and no product",
        "narrow": "this one has 16 computed elements, and no product",
    }
    assert said["small"].source == "inline.yaml:11"
    assert said["small"].why.startswith(
        "not on budgeted: the region of 'small' is one of 4, and budgeted takes 1 region, those with the most work"
    )


def test_what_is_given_back_is_offered_to_the_following_backends(with_backend):
    second = FILE.replace("budgeted", "second")
    plugins = with_backend(FILE + "region: {count: 1}\n", second)
    found = dovetail.plan(open_text(FOUR, "model"), ["budgeted", "second"], plugins=plugins)
    assert {node.name for node in found.nodes if node.backend == "second"} == {"small", "wide", "narrow"}


def test_a_pinned_region_stays_while_another_can_go(plan):
    assert on(plan("region: {count: 1}\n", pins=["narrow=budgeted"])) == {"narrow"}
    with pytest.raises(DovetailError, match="pin 'narrow=budgeted': budgeted refuses 'narrow': .* takes 1 region"):
        plan("region: {count: 1}\n", pins=["narrow=budgeted", "wide=budgeted"])


def test_a_region_that_nobody_else_runs_stays_beyond_the_count(with_backend):
    file = FILE.replace("MatMul", "com.acme::Fused") + "region: {count: 1}\n"
    text = """<ir_version: 10, opset_import: ["": 22, "com.acme": 1]>
    g (float[4] x) => (float[4] y) <float[4] a, float[4] c> {
      [one] a = com.acme.Fused (x)  [cut] b = Erf (a)  [two] c = com.acme.Fused (b)  [end] y = Erf (c)
    }"""
    found = dovetail.plan(open_text(text, "model"), "budgeted", plugins=with_backend(file))
    assert on(found) == {"one", "two"}
    assert {remark.why for remark in found.remarks if remark.rule == "region-count"} == {
        "it stays on budgeted, which alone runs it, and takes 1 region"
    }


@pytest.mark.parametrize(
    ("size", "regions"),
    [
        ("16448", [0, 0, 0, 0]),
        ("12KiB", [0, 0, 0, 1]),
        ("8KiB", [0, 1, 1, 1]),
    ],
)
def test_a_region_whose_weights_are_too_large_is_split(plan, size, regions):
    """In float16: 8192, 4096 and 64 bytes. The Relu between them holds none."""
    found = plan(f"region: {{bytes: {size}}}\n", CHAIN)
    assert [node.region for node in found.nodes] == regions
    assert on(found) == {"one", "two", "again", "three"}


def test_a_node_whose_weight_is_too_large_goes_to_the_next_backend(plan):
    found = plan("region: {bytes: 4KiB}\n", CHAIN)
    assert on(found) == {"two", "again", "three"}
    (said,) = [remark for remark in found.remarks if remark.rule == "region"]
    assert said.why == "not on budgeted: it does not take the region of 'one': bytes = 8192; allowed: ..4096"
    assert said.source == "inline.yaml:11"


def test_the_result_has_the_regions_that_the_plan_has(with_backend):
    """Conversions of weights change neither their number nor what they hold."""
    plugins = with_backend(FILE + "region: {count: 2, bytes: 8KiB}\n")
    compiled = dovetail.compile(open_text(CHAIN, "model"), "budgeted", plugins=plugins, verify=True)
    names = [set(region.nodes) for region in compiled.regions if region.backend == "budgeted"]
    assert [nodes & {"one", "two", "again", "three"} for nodes in names] == [{"one"}, {"two", "again", "three"}]
    assert not compiled.verification.broken
