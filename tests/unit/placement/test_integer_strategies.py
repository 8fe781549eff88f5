"""Strategies for integers: what each one claims, what follows what, and why a node stays away."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

HEAD = '<ir_version: 10, opset_import: ["": 18]>\n'
NPU = """
backend: {name}
device: npu
opset: 13..26
dynamic: accept
precision: {{low: int8, high: float32}}
types: {{q8: {{dtype: int8, scheme: symmetric}}, f32: float32}}
ops:
  {operators}: {{role: active, types: q8}}
  TopK, Tanh: {{types: f32}}
place: {{strategy: {strategy}}}
emit: {{engines: [onnxruntime-cpu]}}
"""
OPERATORS = "Conv, Relu, Clip, Add, Mul, Concat, Reshape, MaxPool"
# in front of products, between them, behind something that stays in floats, and behind all of them
NET = """g (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z) {
    w = Constant <value = float[2,2,1,1] {1.0, 2.0, 3.0, 4.0}> ()
    before = Mul (x, x)  one = Conv (before, w)  between = Relu (one)  pool = MaxPool <kernel_shape = [1, 1]> (between)
    two = Conv (pool, w)  behind = Relu (two)  float = Softmax (behind)  lost = Add (float, x)  three = Conv (lost, w)
    y = Add (three, x)  z = Mul (x, before) }"""


@pytest.fixture
def plan_of(with_backend):
    def make(text, strategy="conservative", backends=("npu",), operators=OPERATORS, **request):
        plugins = with_backend(
            NPU.format(name="npu", operators=operators, strategy=strategy),
            NPU.format(name="other", operators="Conv, Relu", strategy="all-in"),
        )
        model = open_text(HEAD + text, "test")
        for node in model.nodes():
            node.name = node.outputs[0].name
        return dovetail.plan(model, backends, plugins=plugins, **request)

    return make


def on(plan, backend="npu"):
    return {node.name for node in plan.nodes if node.backend == backend}


def said(plan, name):
    return [(remark.rule, remark.reason) for remark in plan.remarks if remark.node == name and remark.kind == "missed"]


BETWEEN = {"one", "between", "pool", "two"}


ALL = BETWEEN | {"before", "behind", "float", "lost", "three", "y", "z"}


@pytest.mark.parametrize(
    ("strategy", "claimed"),
    [
        ("conservative", BETWEEN | {"behind", "three", "y"}),
        ("conv-to-conv", BETWEEN | {"behind"}),
        ("aggressive", BETWEEN | {"behind", "lost", "three", "y"}),
        ("pointwise", {"one", "two", "three"}),
        ("all-in", BETWEEN | {"before", "behind", "lost", "three", "y", "z"}),
        ("perseus", BETWEEN | {"before", "behind", "lost", "three", "y", "z"}),
    ],
)
def test_what_a_strategy_claims(strategy, claimed, plan_of):
    plan = plan_of(NET, strategy)
    assert on(plan) == claimed
    formats = {str(node.precision) for node in plan.nodes if node.backend == "npu"}
    assert formats == {"int8[symmetric]"}


PRODUCTS = "Attention, Conv, ConvTranspose, Gemm, MatMul"


@pytest.mark.parametrize(
    ("strategy", "node", "rule", "why"),
    [
        ("conservative", "before", "not-selected", f"no product ({PRODUCTS}) comes before it"),
        ("conservative", "lost", "not-selected", "it is behind 'float' (Softmax), which is not in integers"),
        ("conservative", "float", "not-supported", "npu does not list Softmax"),
        ("conv-to-conv", "before", "not-selected", "no path of operators in integers leads from a Conv to it"),
        ("conv-to-conv", "lost", "not-selected",
         "no path of operators in integers leads from a Conv to it: 'float' (Softmax) is in the way"),
        ("conv-to-conv", "three", "not-selected",
         "no path of operators in integers joins it with another Conv: 'float' (Softmax) is in the way"),
        ("conv-to-conv", "y", "not-selected", "no path of operators in integers leads from it to a Conv"),
        ("aggressive", "before", "not-selected", f"it computes nothing from the result of a product ({PRODUCTS})"),
        ("pointwise", "pool", "not-selected", f"MaxPool is no product ({PRODUCTS})"),
    ],
)  # fmt: skip
def test_every_node_that_stays_away_says_why(strategy, node, rule, why, plan_of):
    assert (rule, why) in said(plan_of(NET, strategy), node)


@pytest.mark.parametrize("strategy", ["conservative", "conv-to-conv", "aggressive", "pointwise", "all-in", "perseus"])
def test_no_node_stays_away_silently(strategy, plan_of):
    plan = plan_of(NET, strategy)
    assert all(said(plan, name) for name in on(plan, "host"))


SIZES = """g (float[1,2,N,M] x) => (float[1,2,K,L] y, float[1,2,N,M] z) {
    w = Constant <value = float[2,2,1,1] {1.0, 2.0, 3.0, 4.0}> ()  a = Conv (x, w)
    s = Shape <start = 2> (a)  f = Cast <to = 1> (s)  g = Mul (f, factor)  i = Cast <to = 7> (g)
    h = Concat <axis = 0> (front, i)  e = Resize (a, , , h)  y = Relu (e)
    n = Shape (x)  c = ConstantOfShape (n)  z = Add (a, c) }"""


@pytest.mark.parametrize("strategy", ["conservative", "conv-to-conv", "aggressive", "pointwise", "all-in", "perseus"])
def test_shape_arithmetic_stays_out_of_integers_in_floats_too(strategy, plan_of):
    sizes = SIZES.replace(
        "{\n", "{\n factor = Constant <value = float {1.5}> () front = Constant <value_ints = [1, 2]> ()", 1
    )
    plan = plan_of(sizes, strategy, operators=f"{OPERATORS}, Resize")
    assert not {"f", "g", "i", "h", "c"} & on(plan)
    for name in ("g", "h", "c"):
        assert said(plan, name) == [("shape-arithmetic", "it computes extents or indices, which are never quantized")]


TOKENS = """g (float[N,8] z) => (float[N,8,4,4] y) {
    w = Constant <value = float[8,8,1,1] {ONES64}> ()  learned = Constant <value = float[1,8,4,4] {ONES128}> ()
    zero = Constant <value_ints = [0]> ()  rest = Constant <value_ints = [8, 4, 4]> ()
    n = Shape (z)  b = Gather (n, zero)  to = Concat <axis = 0> (b, rest)  token = Expand (learned, to)
    c = Conv (token, w)  r = Relu (c)  y = Conv (r, w) }"""
POSITIONS = """g (float[N,8] z) => (float[K,4] y) {
    w = Constant <value = float[4,4] {ONES16}> ()  table = Constant <value = float[20,4] {ONES80}> ()
    zero = Constant <value_int = 0> ()  one = Constant <value_int = 1> ()
    n = Shape <end = 1> (z)  count = Squeeze (n)  places = Range (zero, count, one)  rows = Gather (table, places)
    c = MatMul (rows, w)  r = Relu (c)  y = MatMul (r, w) }"""


@pytest.mark.parametrize("strategy", ["conservative", "conv-to-conv", "aggressive", "pointwise", "all-in", "perseus"])
@pytest.mark.parametrize(("text", "extents"), [(TOKENS, {"n", "b", "to"}), (POSITIONS, {"n", "count", "places"})])
def test_what_was_learned_is_data_however_it_is_placed(strategy, text, extents, plan_of):
    """A class token that is expanded to a batch, and a table of positions that is read by their numbers."""
    for count in (16, 64, 80, 128):
        text = text.replace(f"{{ONES{count}}}", f"{{{', '.join(['1.0'] * count)}}}")
    plan = plan_of(text, strategy, operators=f"{OPERATORS}, MatMul")
    assert not extents & on(plan)
    if strategy == "conv-to-conv" and "Conv" not in text:  # it begins at convolutions
        assert all(rule == "not-selected" for name in ("c", "y") for rule, _ in said(plan, name))
    else:
        assert {"c", "y"} <= on(plan)


def test_integers_that_are_no_shapes_stay_out_too(plan_of):
    text = "g (float[2,4] x, int64[2] k) => (int64[2] y) { i = ArgMax <axis = 1, keepdims = 0> (x)  y = Add (i, k) }"
    plan = plan_of(text, "all-in")
    assert said(plan, "y") == [("no-floats", "it computes integers or truth values, which are never quantized")]


def test_what_a_backend_takes_in_floats_only_is_left_to_others(plan_of):
    plan = plan_of("g (float[2] x) => (float[2] y) { y = Tanh (x) }", "all-in")
    assert said(plan, "y") == [("not-in-integers", "npu takes Tanh in floats only")]


TAIL = """g (float[1,2,4,4] x) => (float[1,2,4,2] v, int64[1,2,4,2] i, float[1,2,4,2] s, int64[1,2,4,2] j) {
    w = Constant <value = float[2,2,1,1] {1.0, 2.0, 3.0, 4.0}> ()  k = Constant <value_ints = [2]> ()
    a = Conv (x, w)  v, i = TopK (a, k)  f = Softmax (a)  s, j = TopK (f, k) }"""


def test_topk_goes_where_its_input_comes_from(plan_of):
    plan = plan_of(TAIL)
    assert on(plan) == {"a", "v"}
    assert said(plan, "s") == [("follows", "it goes where 'f' (Softmax) goes, which is elsewhere")]


@pytest.mark.parametrize("strategy", ["conservative", "conv-to-conv", "aggressive", "all-in", "perseus"])
def test_an_activation_follows_its_producer_that_was_pinned_elsewhere(strategy, plan_of):
    plan = plan_of(NET, strategy, pins=["two=host"])
    assert "behind" not in on(plan)
    assert said(plan, "behind")[0] == ("follows", "it goes where 'two' (Conv) goes, which is on host")
    assert {"one", "between", "pool"} <= on(plan)  # a choice for one node leaves the rest alone


def test_a_chain_of_activations_goes_as_a_whole(plan_of):
    text = """g (float[1,2,4,4] x) => (float[1,2,4,4] y) {
        w = Constant <value = float[2,2,1,1] {1.0, 2.0, 3.0, 4.0}> ()
        a = Conv (x, w)  b = Relu (a)  c = Clip (b)  d = Relu (c)  y = Conv (d, w) }"""
    assert on(plan_of(text, pins=["a=host"])) == {"y"}
    assert said(plan_of(text, pins=["a=host"]), "d")[0][1] == "it goes where 'c' (Clip) goes, which is given back"


def test_a_pinned_activation_stays(plan_of):
    for pin in ("behind=npu", "behind=npu/int8[symmetric]"):
        assert "behind" in on(plan_of(NET, pins=["two=host", pin]))


def test_an_activation_follows_its_producer_to_the_backend_that_claimed_it(plan_of):
    """The other backend has Conv and Relu first; what is left has nothing to follow here."""
    plan = plan_of(NET, backends=("other", "npu"))
    assert on(plan, "other") == {"one", "between", "two", "behind", "three"}
    assert on(plan) == {"pool", "y"}


def test_what_a_fix_up_gives_back_is_offered_to_the_backends_behind(plan_of):
    plan = plan_of(NET, backends=("npu", "other"), pins=["two=other"])
    assert on(plan, "other") == {"two", "behind"}


def test_control_flow_is_left_alone(plan_of):
    plan = plan_of(
        """g (float[4] x, bool c) => (float[4] y) { y = If (c) <then_branch = t () => (float[4] p) { p = Relu (x) },
             else_branch = e () => (float[4] q) { q = Relu (x) }> }""",
        "all-in",
    )
    assert not on(plan)


def test_the_ends_of_paths_are_an_option(plan_of):
    net = NET.replace("two = Conv (pool, w)", "two = Add (pool, pool)")
    assert on(plan_of(net, "conv-to-conv")) == set()
    assert on(plan_of(net, "conv-to-conv, ends: [Conv, Add]")) == {
        node for node in ALL if node not in ("before", "float", "z")
    }


def test_an_option_that_does_not_exist(plan_of):
    with pytest.raises(
        DovetailError, match=r"strategy 'conv-to-conv' does not read 'end' under place \(did you mean 'ends'\?\)"
    ):
        plan_of(NET, "conv-to-conv, end: [Conv]")


def test_explain_gives_the_reason(plan_of):
    plan = plan_of(NET)
    assert any("it is behind 'float' (Softmax)" in line for line in dovetail.explain(plan, "lost"))
