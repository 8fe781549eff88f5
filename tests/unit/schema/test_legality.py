"""What a backend says of a node, and why not."""

import onnx_ir as ir
import pytest
from dovetail.ir import Format
from dovetail_schemas import RuleJudge, SchemaError

INT8, INT16 = Format.of("int8[symmetric]"), Format.of("int16[symmetric]")


@pytest.fixture
def judge(load, node):
    """`judge(rules, node in ONNX text)`; rules are what stands under `ops:`, or a whole file after three lines."""

    def run(rules, text, opset=22, region=None, facts=None, **keys):
        extra = "".join(f"{key}: {value}\n" for key, value in keys.items())
        backend = load(f"{extra}ops:\n  {rules}\n", facts=frozenset(facts or {}))
        return RuleJudge(backend, facts or {}, opset)(node(text, opset), region)

    return run


def conv(x="1,8,16,16", w="8,8,3,3", attributes=""):
    return f"(float[{x}] x, float[{w}] w) => (float[a,b,c,d] y) {{ y = Conv{attributes}(x, w) }}"


LIMITS = """Conv:
    shape: {X: N C H W, W: M Cg KH KW, strides: SH SW, dilations: DH DW}
    limits:
"""

BOUNDS = [
    # limit, inside, outside, what the refusal says
    ("KH, KW: 1..7", conv(w="8,8,7,7"), conv(w="8,8,7,8"), "KW = 8; allowed: 1..7"),
    ("KH*KW*Cg: ..72", conv(), conv(w="8,9,3,3"), "KH*KW*Cg = 81 (Cg = 9, KH = 3, KW = 3); allowed: ..72"),
    ("N: 2..", conv(x="2,8,4,4"), conv(), "N = 1; allowed: 2.."),
    ("C: pow2", conv(), conv(x="1,12,4,4"), "C = 12; allowed: pow2"),
    ("KH: =KW", conv(), conv(w="8,8,3,1"), "KH = 3; allowed: =KW (KW = 1)"),
    ("DH: ..DW", conv(), conv(attributes="<dilations=[2,1]>"), "DH = 2; allowed: ..DW (DW = 1)"),
    ("strides: [1, 2]", conv(attributes="<strides=[1,2]>"), conv(attributes="<strides=[1,3]>"),
     "strides = [1, 3]; allowed: [1, 2]"),
    ("strides: [[2, 1]]", conv(attributes="<strides=[2,1]>"), conv(attributes="<strides=[1,2]>"),
     "strides = [1, 2]; allowed: [[2, 1]]"),
    ("auto_pad: NOTSET", conv(), conv(attributes='<auto_pad="VALID">'), "auto_pad = VALID; allowed: NOTSET"),
    ("max(pads): ..(KH-1)/2", conv(attributes="<pads=[1,1,1,1]>"), conv(attributes="<pads=[1,2,1,1]>"),
     "max(pads) = 2 (pads = [1, 2, 1, 1]); allowed: ..(KH-1)/2 (KH = 3)"),
    ("H % SH, W % SW: 0", conv(attributes="<strides=[2,4]>"), conv(attributes="<strides=[3,1]>"),
     "H % SH = 1 (H = 16, SH = 3); allowed: 0"),
    ("align(C, 8): ..8", conv(), conv(x="1,9,4,4"), "align(C, 8) = 16 (C = 9); allowed: ..8"),
    ("group: ..1", conv(), conv(attributes="<group=2>"), "group = 2; allowed: ..1"),
    ("X.rank: 4", conv(), None, ""),
    ("Y.is_output: true", conv(), None, ""),
    ("Y.is_output: false", None, conv(), "Y.is_output = true; allowed: false"),
    ("W.constant: true", None, conv(), "W.constant = false; allowed: true"),
    ("constants: 0", conv(), None, ""),
    ("version: 22..", conv(), None, ""),
    ("version: ..21", None, conv(), "version = 22; allowed: ..21"),
    ("H // (KH-3): 1", None, conv(), "H // (KH-3) cannot be computed: integer division or modulo by zero "
     "(H = 16, KH = 3); needed by H // (KH-3): 1"),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "inside", "outside", "text"), BOUNDS, ids=[case[0] for case in BOUNDS])
def test_both_sides_of_a_limit(limit, inside, outside, text, judge):
    rules = f"{LIMITS}      {limit}"
    if inside:
        assert judge(rules, inside).ok is True
    if outside:
        verdict = judge(rules, outside)
        assert (verdict.ok, [str(reason) for reason in verdict.reasons]) == (False, [f"{text} [x.yaml:8]"])


def test_all_reasons_are_given(judge):
    verdict = judge(LIMITS + "      KH: 1\n      KW: 2", conv())
    assert [reason.source for reason in verdict.reasons] == ["x.yaml:8", "x.yaml:9"]


def test_a_name_that_the_node_does_not_have_limits_nothing(judge):
    assert judge("Resize: {limits: {antialias: 0}}", "(float[2] x) => (float[4] y) { y = Resize(x) }", opset=11).ok
    assert judge("Conv: {shape: {B: K}, limits: {K: 1}}", conv()).ok


def test_a_guard_switches_a_block(judge):
    rules = LIMITS + "      - {when: {group: 2..}, Cg: ..4}\n      - {when: {max(dilations): 2..}, strides: 1}"
    assert judge(rules, conv()).ok is True
    assert judge(rules, conv(attributes="<group=2>")).ok is False
    assert judge(rules, conv(attributes="<strides=[2,2]>")).ok is True
    assert judge(rules, conv(attributes="<strides=[2,2], dilations=[1,2]>")).ok is False


class TestUnknownExtents:
    rules = "Relu: {shape: {X: N C H}, limits: {H: ..1024, C: ..8}}"
    text = "(float[n,4,h] x) => (float[n,4,h] y) { y = Relu(x) }"

    def test_refuse(self, judge):
        verdict = judge(self.rules, self.text)
        assert verdict.reasons[0].text == "H is not known before run time, and H: ..1024 needs it"

    @pytest.mark.parametrize("dynamic", ["accept", "profile"])
    def test_accept_and_profile(self, dynamic, judge):
        assert judge(self.rules, self.text, dynamic=dynamic).ok is True
        assert judge(self.rules, self.text.replace("4", "9"), dynamic=dynamic).ok is False

    def test_an_extent_that_no_limit_needs(self, judge):
        rules = "Relu: {shape: {X: N C H}, limits: {C: ..8}}"
        assert judge(rules, self.text).ok is True
        verdict = judge(rules, self.text, dynamic="refuse")
        assert verdict.ok is False
        assert verdict.reasons[0].text == "extent 0 of X is not known before run time, and x takes fixed shapes"
        assert judge("Relu: {}", self.text.replace("n,4,h", "2,4,8"), dynamic="refuse").ok is True

    def test_an_extent_among_many_inputs(self, judge):
        graph = "(float[2,3] a, float[2,k] b) => (float[2,6] y) { y = Concat<axis=1>(a, b) }"
        verdict = judge("Concat: {}", graph, dynamic="refuse")
        assert verdict.reasons[0].text == "extent 1 of in1 is not known before run time, and x takes fixed shapes"

    def test_a_literal_in_a_shape(self, judge):
        rules = "Relu: {shape: {X: 1 C H}}"
        verdict = judge(rules, self.text)
        assert verdict.reasons[0].text == "extent 0 of X is not known before run time, and X: 1 C H needs it"
        assert judge(rules, self.text, dynamic="accept").ok is True

    def test_an_unknown_guard_never_skips_a_limit(self, judge):
        rules = "Relu: {shape: {X: N C H}, limits: [{when: {H: 2..}, C: ..2}]}"
        assert judge(rules, self.text, dynamic="accept").ok is False


def test_the_content_of_a_port_must_be_constant_where_a_limit_names_it(judge):
    rules = "ReduceSum: {limits: {axes: 0..1}}"
    graph = "(float[2,3] x{}) => (float y){} {{ y = ReduceSum(x, a) }}"
    verdict = judge(rules, graph.format(", int64[1] a", ""), dynamic="accept")
    assert verdict.reasons[0].text == "axes is not a constant, and axes: 0..1 needs it"
    assert judge(rules, graph.format("", "<int64[1] a = {-1}>")).ok is True


class TestRegion:
    rules = "Conv:\n    shape: {W: M Cg _ _}\n    limits: [{when: {region.last: true}, Cg: ..4}]"

    def test_asked_again_when_there_are_regions(self, judge):
        assert judge(self.rules, conv()).ok is None
        assert judge(self.rules, conv(), region={"last": True}).ok is False
        assert judge(self.rules, conv(), region={"last": False}).ok is True

    def test_not_asked_when_it_makes_no_difference(self, judge):
        assert judge(self.rules, conv(w="8,4,3,3")).ok is True
        assert judge(self.rules.replace("M Cg", "9 Cg"), conv()).ok is False


class TestRows:
    rules = """Gemm:
    role: active
    rows:
      - {when: {transB: 0}, shape: {A: M K, B: K N}, limits: {K: ..4}, role: manual, policy: fp32}
      - {when: {transB: 1}, shape: {A: M K, B: N K}, limits: {K: ..8}, set: {alpha: 2}, keep: [C]}
"""

    @pytest.mark.parametrize(
        ("b", "attributes", "row", "role", "policy"),
        [("4,7", "", 0, "manual", "fp32"), ("7,4", "<transB=1>", 1, "active", "")],
    )
    def test_the_first_row_that_fits_decides(self, b, attributes, row, role, policy, judge):
        verdict = judge(self.rules, f"(float[2,4] a, float[{b}] b) => (float y) {{ y = Gemm{attributes}(a, b) }}")
        assert (verdict.ok, verdict.row, verdict.role, verdict.policy) == (True, row, role, policy)
        assert verdict.source == f"x.yaml:{8 + row}"
        assert (verdict.set, verdict.keep) == (({"alpha": 2}, {"C"}) if row else ({}, frozenset()))

    def test_a_row_that_fits_decides_even_if_its_limits_do_not_hold(self, judge):
        verdict = judge(self.rules, "(float[2,5] a, float[5,7] b) => (float y) { y = Gemm(a, b) }")
        assert (verdict.ok, verdict.row) == (False, 0)
        assert str(verdict.reasons[0]) == "K = 5; allowed: ..4 [x.yaml:8]"

    def test_none_fits(self, judge):
        verdict = judge(self.rules, "(float[4,2] a, float[4,7] b) => (float y) { y = Gemm(a, b) }")
        assert (verdict.ok, verdict.row) == (False, None)
        assert verdict.reasons[0].text == (
            "no row fits Gemm of [4, 2], [4, 7]; "
            "allowed: (A: M K, B: K N when transB: 0); (A: M K, B: N K when transB: 1)"
        )

    def test_a_single_shape_says_what_does_not_fit(self, judge):
        verdict = judge("Relu: {shape: {X: N C H W}}", "(float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
        assert str(verdict.reasons[0]) == "X has 2 extents; allowed: X: N C H W [x.yaml:5]"


@pytest.mark.parametrize(
    ("op_type", "a", "b", "ok"),
    [
        ("Mul", "1,4,8,8", "1,4,1,1", True),
        ("Mul", "1,4,1,1", "1,4,8,8", True),  # both orders of a commutative operator
        ("Mul", "1,4,8,8", "4,1,1", True),  # leading ones of an operator that broadcasts
        ("Mul", "1,4,8,8", "1,4,8,1", False),
        ("Sub", "1,4,8,8", "4,1,1", True),
        ("Sub", "4,1,1", "1,4,8,8", False),
    ],
)
def test_broadcasting_operators(op_type, a, b, ok, judge):
    rules = "Mul, Sub: {shape: {A: N C H W, B: 1 C 1 1}, limits: {H: 2..}}"
    assert judge(rules, f"(float[{a}] a, float[{b}] b) => (float y) {{ y = {op_type}(a, b) }}").ok is ok


class TestFacts:
    rules = "Conv: {limits: {depth: ..3}}"

    @pytest.mark.parametrize(("value", "ok"), [(3, True), (4, False), (None, False)])
    def test_value(self, value, ok, judge):
        assert judge(self.rules, conv(), facts={"depth": lambda n: value}).ok is ok

    def test_not_known_follows_dynamic(self, judge):
        assert judge(self.rules, conv(), facts={"depth": lambda n: None}, dynamic="accept").ok is True

    def test_a_value_that_the_file_gives_holds_for_every_node(self, load, node):
        backend = load(f"facts: {{depth: 1}}\nops:\n  {self.rules}\n", facts=frozenset({"depth"}))
        assert RuleJudge(backend, {"depth": lambda n: 100}, 22)(node(conv(), 22)).ok is True

    def test_a_fact_that_no_plugin_registers(self, load):
        backend = load(f"ops:\n  {self.rules}", facts=frozenset({"depth"}))
        with pytest.raises(SchemaError) as caught:
            RuleJudge(backend)
        assert caught.value.message == "x.yaml: its limits need the fact 'depth', which no plugin registers"


@pytest.mark.parametrize(
    ("text", "op_type", "reason"),
    [
        ("unlisted: refuse", "Relu", "x does not list Relu [x.yaml:4]"),
        ("unlisted: forbid", "Relu", "a model with Relu is rejected whole by the tools of x [x.yaml:4]"),
        ("ops: {Relu: refuse}", "Relu", "x refuses Relu [x.yaml:4]"),
        ("ops: {Conv: {}}", "Relu", "x does not list Relu [x.yaml:1]"),
    ],
)
def test_not_taken_at_all(text, op_type, reason, load, node):
    verdict = RuleJudge(load(text))(node(f"(float[2] x) => (float[2] y) {{ y = {op_type}(x) }}"))
    assert (verdict.ok, list(map(str, verdict.reasons))) == (False, [reason])


def test_answers_are_kept_but_not_confused(load, node):
    """Nodes differ in what a limit asks: an attribute, a shape, a constant's content, a fact, being an output."""
    backend = load(
        "ops:\n  TopK: {limits: {K: ..3}}\n  Relu: {limits: {Y.is_output: true}}\n"
        "  Softmax: {shape: {input: N C}, limits: {axis: 1, C: ..4, rare: true}}",
        facts=frozenset({"rare"}),
    )
    judge = RuleJudge(backend, {"rare": lambda n: n.name == "rare"})
    topk = "(float[9] x) => (float y, int64 i) <int64[1] k = {%d}> { y, i = TopK(x, k) }"
    assert [judge(node(topk % k)).ok for k in (3, 4, 3)] == [True, False, True]
    relu = node("(float[9] x) => (float[9] y) { z = Relu(x) y = Relu(z) }")
    first = relu.inputs[0].producer()
    first.outputs[0].type, first.outputs[0].shape = relu.outputs[0].type, relu.outputs[0].shape
    assert (judge(first).ok, judge(relu).ok) == (False, True)
    softmax = "(float[1,%d] x) => (float y) { y = Softmax<axis=%d>(x) }"
    found = [node(softmax % case) for case in ((4, 1), (5, 1), (4, 0), (4, 1))]
    for softmax_node in found[:3]:
        softmax_node.name = "rare"
    assert [judge(softmax_node).ok for softmax_node in found] == [True, False, False, False]


def test_an_operator_of_a_domain_that_onnx_does_not_know(load, node):
    backend = load("ops: {com.acme::Own: {role: active, limits: {size: ..3, in0.rank: 1}}}")
    own = node("(float[2] x) => (float[2] y) { y = com.acme.Own<size=3>(x) }", domains=', "com.acme": 1')
    assert RuleJudge(backend)(own).ok is True
    own.attributes["size"] = ir.AttrInt64("size", 4)
    assert RuleJudge(backend)(own).reasons[0].text == "size = 4; allowed: ..3"


def test_a_row_that_waits_for_the_region_decides_nothing_yet(judge):
    rules = "Relu: {rows: [{when: {region.last: true}, limits: {X.rank: 4}}, {limits: {X.rank: 1}}]}"
    relu = "(float[2] x) => (float[2] y) { y = Relu(x) }"
    found = [judge(rules, relu, region=region).ok for region in (None, {"last": True}, {"last": False})]
    assert found == [None, False, True]


def test_a_guard_that_cannot_be_computed_never_skips_a_limit(judge):
    assert (
        judge(
            "Relu: {shape: {X: N}, limits: [{when: {8 % N: 0}, N: 1..}]}",
            "(float[0] x) => (float[0] y) { y = Relu(x) }",
        ).ok
        is False
    )


class TestARowWithAGuardThatIsNotKnown:
    """Whether a row is about a node must be known where a limit would have to be."""

    rows = "Relu: {rows: [{when: {H: ..64}, shape: {X: N C H W}, policy: lower}, {policy: fp32}]}"
    limit = "Relu: {shape: {X: N C H W}, limits: {H: ..64}}"
    open_height = "(float[1,2,h,8] X) => (float[1,2,h,8] y) { y = Relu(X) }"

    def test_it_is_refused_where_the_same_limit_is(self, judge):
        for rules in (self.rows, self.limit):
            verdict = judge(rules, self.open_height)
            assert verdict.ok is False
            assert verdict.reasons[0].text.startswith("H is not known before run time, and H: ..64 needs it")
        assert judge(self.rows, self.open_height).reasons[0].text.endswith("to choose a row")

    def test_it_is_refused_where_no_extent_may_be_open(self, judge):
        assert judge(self.rows, self.open_height, dynamic="refuse").ok is False

    @pytest.mark.parametrize("dynamic", ["accept", "profile"])
    def test_it_is_taken_where_the_backend_accepts_open_extents(self, judge, dynamic):
        verdict = judge(self.rows, self.open_height, dynamic=dynamic)
        assert (verdict.ok, verdict.policy) == (True, "lower")

    @pytest.mark.parametrize(("height", "policy"), [(64, "lower"), (65, "fp32")])
    def test_it_decides_where_the_extent_is_known(self, judge, height, policy):
        verdict = judge(self.rows, self.open_height.replace("h,", f"{height},"))
        assert (verdict.ok, verdict.policy) == (True, policy)

    def test_the_content_of_an_input_that_is_no_constant_is_not_known_either(self, judge):
        rules = "ReduceSum: {rows: [{when: {axes: 1}, policy: lower}, {policy: fp32}]}"
        graph = "(float[4,4] X, int64[1] a) => (float[1,4] y) { y = ReduceSum(X, a) }"
        verdict = judge(rules, graph, dynamic="accept")
        assert verdict.ok is False
        assert "axes is not a constant, and axes: 1 needs it" in verdict.reasons[0].text

    @pytest.mark.parametrize(("dynamic", "ok"), [("refuse", False), ("accept", True)])
    def test_a_fact_that_is_not_known_follows_dynamic(self, judge, dynamic, ok):
        rules = "Conv: {rows: [{when: {depth: ..3}}]}"
        graph = conv().replace("a,b,c,d", "1,8,14,14")
        assert judge(rules, graph, facts={"depth": lambda n: None}, dynamic=dynamic).ok is ok


class TestBothOrdersOfACommutativeOperator:
    """A file that names ports means the order in which its shape fits, and answers about the ports of the node."""

    graph = "(float[{}] a, float[{}] b) => (float[2,4,8,8] y) {{ y = Mul(a, b) }}"

    def test_the_types_and_kept_ports_of_the_other_order_are_those_of_the_other_ports(self, judge):
        rules = """BitwiseAnd: {shape: {A: N C H W, B: 1 C 1 1}, types: {A: int32, B: int32}, keep: [B]}"""
        graph = "(int32[{}] a, int32[{}] b) => (int32[2,4,8,8] y) {{ y = BitwiseAnd(a, b) }}"
        assert judge(rules, graph.format("2,4,8,8", "1,4,1,1")).keep == {"B"}
        assert judge(rules, graph.format("1,4,1,1", "2,4,8,8")).keep == {"A"}

    def test_quantized_ports_follow_the_order_that_fits(self, judge):
        """Activations and weights are held in other formats, and the scale of an Add's or Mul's weight is its own."""
        types = "{q: {dtype: int8, scheme: symmetric}, w: {dtype: int16, scheme: symmetric}}"
        rules = "Mul: {shape: {A: N C H W, B: 1 C 1 1}, types: {A: q, B: w, C: q}}"
        written = judge(rules, self.graph.format("2,4,8,8", "1,4,1,1"), types=types)
        swapped = judge(rules, self.graph.format("1,4,1,1", "2,4,8,8"), types=types)
        assert (written.types["A"], written.types["B"]) == ((INT8,), (INT16,))
        assert (swapped.types["A"], swapped.types["B"]) == ((INT16,), (INT8,))

    def test_positions_are_exchanged_as_names_are(self, judge):
        types = "{q: {dtype: int8, scheme: symmetric}, w: {dtype: int16, scheme: symmetric}}"
        rules = "Max: {shape: {in0: N C H W, in1: 1 C 1 1}, types: {in0: q, in1: w, out0: q}}"
        graph = "(float[1,4,1,1] a, float[2,4,8,8] b) => (float[2,4,8,8] y) { y = Max(a, b) }"
        verdict = judge(rules, graph, types=types)
        assert (verdict.types["in0"], verdict.types["in1"]) == ((INT16,), (INT8,))


def test_a_list_that_is_an_input_is_compared_as_the_attribute_that_it_was(load, node):
    pad = "ops: {Pad: {types: float32, shape: {pads: BN BC EN EC}, limits: {BN: 0, EC: ..3}}}"
    judge = RuleJudge(load(pad), opset=22)
    text = "(float[2,2] x) => (float[2,6] y) <int64[4] p = {0, 0, 0, %d}> { y = Pad (x, p) }"
    assert judge(node(text % 3)).ok
    assert [reason.text for reason in judge(node(text % 4)).reasons] == ["EC = 4; allowed: ..3"]


def test_an_extent_with_the_name_of_a_port_reads_no_constant(load, node):
    judge = RuleJudge(load("ops: {Conv: {types: float32, shape: {X: N C H W}, limits: {W: ..8}}}"), opset=22)
    one = node("(float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {1}> { y = Conv (x, w) }")

    class Unread:
        shape, dtype, size = one.inputs[1].shape, one.inputs[1].dtype, 1

        def numpy(self):
            raise AssertionError("the weight is read")

    one.inputs[1].const_value = Unread()
    assert judge(one).ok
