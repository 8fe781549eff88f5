"""Types: does an allowed assignment exist, and what may every port be."""

import onnx_ir as ir
import pytest
from dovetail_schemas import RuleJudge
from dovetail_schemas.operators import dtype_name
from dovetail_schemas.type_specs import DTYPES


def written(types):
    """The formats of ports as text."""
    return {port: tuple(map(str, formats)) for port, formats in types.items()}


RELU = "({0}[2] x) => ({0}[2] y) {{ y = Relu(x) }}"


@pytest.fixture
def judge(load, node):
    def run(types, text, opset=22, head="unlisted: {{types: {}}}"):
        return RuleJudge(load(head.format(types)), opset=opset)(node(text, opset))

    return run


@pytest.mark.parametrize(
    ("listed", "present", "allowed"),
    [
        ("[bfloat16, float32]", "float", ("bfloat16", "float32")),  # float32 may become any listed type
        ("[bfloat16, float32]", "bfloat16", ("bfloat16", "float32")),
        ("[bfloat16, float32, float16]", "float16", ("float32", "float16")),  # nothing that holds less
        ("[bfloat16, float32]", "float16", None),
        ("[bfloat16, float32]", "double", None),  # never narrowed silently
        ("[float32, float64]", "double", ("float64",)),
        ("float32", "float", ("float32",)),
        ("[bfloat16, float32]", "int32", ()),  # integers are not constrained by float lists
        ("[float32, int32]", "int64", None),  # but by a list of integers
        ("[float32, int64]", "int64", ()),
    ],
)
def test_one_type_parameter(listed, present, allowed, judge):
    verdict = judge(listed, RELU.format(present))
    assert verdict.ok is (allowed is not None)
    assert written(verdict.types) == ({"X": allowed, "Y": allowed} if allowed else {})


def test_a_refusal_names_port_and_types(judge):
    verdict = judge("[bfloat16, float32]", RELU.format("double"))
    assert list(map(str, verdict.reasons)) == [
        "X is float64; allowed: bfloat16, float32 [x.yaml:4]",
        "Y is float64; allowed: bfloat16, float32 [x.yaml:4]",
    ]


def test_the_operator_schema_at_the_nodes_version_counts(judge):
    conv = "(float[1,1,4,4] x, float[1,1,3,3] w) => (float[1,1,2,2] y) { y = Conv(x, w) }"
    assert written(judge("[bfloat16, float32]", conv, opset=22).types)["X"] == ("bfloat16", "float32")
    assert written(judge("[bfloat16, float32]", conv, opset=11).types)["X"] == ("float32",)
    verdict = judge("bfloat16", conv, opset=11)
    assert verdict.reasons[0].text == (
        "X is float32; allowed: bfloat16, and the operator takes float16, float32, float64"
    )


def test_a_port_that_the_schema_fixes_is_computed_never_written(judge):
    resize = "(float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y) { y = Resize(x, , s) }"
    assert written(judge("float16", resize).types) == {"X": ("float16",), "scales": ("float32",), "Y": ("float16",)}


def test_types_for_all_ports_are_one_choice(judge):
    pow_ = "(float[2] x, float16[2] y) => (float[2] z) { z = Pow(x, y) }"
    assert written(judge("[float16, float32]", pow_).types)["X"] == ("float16", "float32")
    assert written(judge("[bfloat16, float16]", pow_).types) == {
        "X": ("float16",),
        "Y": ("float16",),
        "Z": ("float16",),
    }


def test_ports_named_apart_choose_apart(judge):
    pow_ = "(float[2] x, bfloat16[2] y) => (float[2] z) { z = Pow(x, y) }"
    head = "ops: {{Pow: {{types: {}}}}}"
    assert written(judge("[float16, bfloat16]", pow_, head=head).types)["X"] == ("bfloat16",)
    apart = judge("{X: float16, Y: bfloat16, Z: [float16, float32]}", pow_, head=head)
    assert written(apart.types) == {"X": ("float16",), "Y": ("bfloat16",), "Z": ("float16",)}  # X and Z are one T


def test_no_type_fits_all_ports(judge):
    verdict = judge("{A: float16, B: bfloat16}", "(float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }",
                    head="ops: {{Add: {{types: {}}}}}")  # fmt: skip
    assert verdict.ok is False
    assert verdict.reasons[0].text == "no type fits all of these ports (A: float16; B: bfloat16; C: float16)"


def test_a_port_that_is_not_named_keeps_its_type(judge):
    norm = "(float[2,2] x, float[2] s) => (float[2,2] y) { y = LayerNormalization(x, s) }"
    verdict = judge("{X: [float16, float32]}", norm, head="ops: {{LayerNormalization: {{types: {}}}}}")
    assert written(verdict.types) == dict.fromkeys(("X", "Scale", "Y"), ("float16", "float32"))  # all of them are one T
    pow_ = "(float[2] x, float[2] y) => (float[2] z) { z = Pow(x, y) }"
    verdict = judge("{X: [float16, float32]}", pow_, head="ops: {{Pow: {{types: {}}}}}")
    assert written(verdict.types)["Y"] == ("float32",)  # a type of its own


def test_kept_ports_do_not_share_the_choice(load, node):
    backend = load("unlisted: {types: [float16, float32]}\nops: {Pow: {keep: [Y], types: [float16, bfloat16]}}")
    verdict = RuleJudge(backend)(node("(float16[2] x, bfloat16[2] y) => (float16[2] z) { z = Pow(x, y) }"))
    assert (verdict.ok, verdict.keep) == (True, {"Y"})
    assert written(verdict.types) == {"X": ("float16",), "Y": ("bfloat16",), "Z": ("float16",)}


def test_the_two_ends_of_a_cast_differ(judge):
    cast = "(bfloat16[2] x) => (float16[2] y) { y = Cast<to=10>(x) }"
    assert written(judge("[float16, bfloat16]", cast).types) == {"input": ("bfloat16",), "output": ("float16",)}


QUANTIZED = """types:
  q8: {{dtype: int8, scheme: symmetric}}
  q16: {{dtype: [int8, int16], scheme: symmetric}}
  acc: {{dtype: int32, scale: X*W, when: {{region.last: true}}}}
precision: {{low: int8, high: float32}}
ops: {{{}}}
"""
CONV = "({0}[1,1,4,4] x, {0}[1,1,3,3] w) => ({0}[1,1,2,2] y) {{ y = Conv(x, w) }}"


def test_ports_that_are_not_named_follow_the_floats_that_integers_stand_for(judge):
    types = "types:\n  mixed: {{dtype: [int8, float16], scheme: symmetric}}\n"
    head = types + "precision: {{low: int8, high: float32}}\nops: {{{}}}\n"
    clip = "(float[2] x, float low, float high) => (float[2] y) { y = Clip(x, low, high) }"
    types = written(judge("Clip: {types: {input: mixed, output: mixed}}", clip, head=head).types)
    assert types["input"] == types["output"] == ("int8[symmetric]", "float16")
    assert types["min"] == types["max"] == ("float16", "float32")


def test_a_quantized_type_stands_for_floats(judge):
    verdict = judge("Conv: {types: {X: q16, W: q8, Y: [q8, acc]}}", CONV.format("float"), head=QUANTIZED)
    assert written(verdict.types) == {
        "X": ("int8[symmetric]", "int16[symmetric]"),
        "W": ("int8[symmetric]",),
        "Y": ("int8[symmetric]",),
    }
    assert verdict.ok is True
    verdict = judge("Conv: {types: q8}", CONV.format("float16"), head=QUANTIZED)
    assert verdict.reasons[0].text == "X is float16; allowed: int8"


FORMATS = {
    "{dtype: int8, scheme: symmetric}": ("int8[symmetric]",),
    "{dtype: int8, granularity: tensor}": ("int8[symmetric]",),
    "{dtype: [int8, int16], scheme: power-of-two}": ("int8[power-of-two]", "int16[power-of-two]"),
    "{dtype: uint8, scheme: asymmetric, observer: kl}": ("uint8[asymmetric]",),
    "{dtype: int8, scheme: symmetric, granularity: channel, axis: 0}": ("int8[symmetric,axis=0]",),
    "{dtype: int4, scheme: asymmetric, granularity: group, axis: 1, group: 32}": ("int4[asymmetric,axis=1,group=32]",),
    "{dtype: [int8, float16, int16], scheme: symmetric}": ("int8[symmetric]", "float16", "int16[symmetric]"),
    "{dtype: int32, scale: X*W}": ("int32[symmetric]", "int32[symmetric,axis=1]"),
    "{dtype: int32, scale: X*W, axis: -1}": ("int32[symmetric]", "int32[symmetric,axis=-1]"),
}


@pytest.mark.parametrize("spec", FORMATS)
def test_a_type_is_a_format(load, node, spec):
    """In the order of the file; a scale that is a product has one scale or one per channel, as its factors do."""
    backend = load(f"types: {{q: {spec}}}\nops: {{Conv: {{types: {{X: q, W: q, Y: q}}}}}}")
    verdict = RuleJudge(backend)(node(CONV.format("float")))
    # Conv is one type parameter, so a float among the formats is allowed for each port.
    assert written(verdict.types)["Y"] == FORMATS[spec]


def test_a_quantized_format_expresses_the_type_of_the_value(load, node):
    rules = (
        "types: {q: {dtype: int8, scheme: symmetric}}\nprecision: {low: int8, high: bfloat16}\nops: {Conv: {types: q}}"
    )
    verdict = RuleJudge(load(rules))(node(CONV.format("bfloat16")))
    assert written(verdict.types)["Y"] == ("int8[symmetric,expressed=bfloat16]",)


def test_verdicts_say_where_parameters_come_from(load, node):
    backend = load("""types:
  q: {dtype: int8, scheme: symmetric, observer: kl}
  w: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0, observer: minmax}
  b: {dtype: int32, scale: X*W}
ops:
  Gemm: {types: {A: q, B: w, C: b, Y: q}}
  Concat: {types: q}
""")
    gemm = RuleJudge(backend)(node("(float[2,4] a, float[3,4] w, float[3] c) => (float[2,3] y) { y = Gemm(a, w, c) }"))
    found = {
        port: {str(format_): (str(p.observer), p.scale) for format_, p in rule.parameters.items()}
        for port, rule in gemm.rules.items()
    }
    assert found == {
        "A": {"int8[symmetric]": ("kl", "")},
        "B": {"int8[symmetric,axis=0]": ("minmax", "")},
        "C": {"int32[symmetric]": ("", "A*B"), "int32[symmetric,axis=0]": ("", "A*B")},
        "Y": {"int8[symmetric]": ("kl", "")},
    }
    assert not any(rule.one_choice for rule in gemm.rules.values())
    concat = RuleJudge(backend)(node("(float[2] a, float[2] b) => (float[4] y) { y = Concat<axis=0>(a, b) }"))
    assert all(rule.one_choice for rule in concat.rules.values())


def test_a_type_with_a_condition(load, node):
    backend = load(QUANTIZED.format("Conv: {types: {X: q8, W: q8, Y: [q8, acc]}}"))
    judge, conv = RuleJudge(backend), node(CONV.format("float"))
    assert written(judge(conv, {"last": True}).types)["Y"] == (
        "int8[symmetric]",
        "int32[symmetric]",
        "int32[symmetric,axis=1]",
    )
    assert written(judge(conv, {"last": False}).types)["Y"] == ("int8[symmetric]",)
    only = RuleJudge(load(QUANTIZED.format("Conv: {types: {X: q8, W: q8, Y: acc}}")))
    assert [only(conv, region).ok for region in (None, {"last": True}, {"last": False})] == [None, True, False]


def test_integers_that_the_file_quantizes(judge):
    dequantize = "({}[2] x, float s) => (float[2] y) {{ y = DequantizeLinear(x, s) }}"
    types = "DequantizeLinear: {types: {in0: q8, out0: [float16, float32]}}"
    assert written(judge(types, dequantize.format("int8"), head=QUANTIZED).types)["x"] == ("int8[symmetric]",)
    verdict = judge(types, dequantize.format("uint8"), head=QUANTIZED)
    assert verdict.reasons[0].text == "x is uint8; allowed: int8"
    pool = "(float[1,1,4,4] x) => (float y, int64 i) { y, i = MaxPool<kernel_shape=[2,2]>(x) }"
    assert written(judge("MaxPool: {types: q8}", pool, head=QUANTIZED).types) == {
        "X": ("int8[symmetric]",),
        "Y": ("int8[symmetric]",),
    }  # Indices are no data


def test_limits_may_narrow_types(judge):
    rules = "{{types: {}, limits: [{{when: {{group: 2..}}, types: {{X: float32}}}}]}}"
    head = "ops: {{Conv: " + rules + "}}"
    assert written(judge("[float16, float32]", CONV.format("float"), head=head).types)["X"] == ("float16", "float32")
    grouped = CONV.format("float").replace("Conv(", "Conv<group=2>(")
    assert written(judge("[float16, float32]", grouped, head=head).types)["Y"] == ("float32",)


def test_a_type_that_is_not_known(load, node):
    relu = node(RELU.format("float"))
    relu.inputs[0].type = None
    judge = RuleJudge(load("unlisted: {types: float32}"))
    assert judge(relu).reasons[0].text == "type of 'x' is not known"


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("unlisted: {types: [float32]}", "(seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt(s, i) }",
         "input_sequence is no tensor, and SequenceAt is not listed with types"),
        ("ops: {SequenceAt: {types: float32}}", "(seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt(s, i) }",
         ""),
        ("ops: {SequenceAt: {types: float32}}", "(seq(double[2]) s, int64 i) => (double[2] y) { y = SequenceAt(s, i) }",
         "input_sequence is float64; allowed: float32"),
        ("unlisted: {types: [float32]}", "(string[2] x) => (string[2] y) { y = Identity(x) }",
         "input is string; allowed: float32"),
        ("unlisted: {}", "(string[2] x) => (string[2] y) { y = Identity(x) }",
         "input is string, and no type is listed for it"),
        ("ops: {Identity: {types: string}}", "(string[2] x) => (string[2] y) { y = Identity(x) }", ""),
    ],
)  # fmt: skip
def test_what_is_no_tensor_of_numbers(file, text, reason, load, node):
    verdict = RuleJudge(load(file))(node(text))
    assert [verdict.ok, *(r.text for r in verdict.reasons[:1])] == ([False, reason] if reason else [True])


def test_variadic_ports_are_called_by_position(judge):
    concat = "(float[2] a, bfloat16[2] b) => (float[4] y) { y = Concat<axis=0>(a, b) }"
    assert written(judge("[bfloat16, float32]", concat.replace("bfloat16[2] b", "float[2] b")).types) == {
        "in0": ("bfloat16", "float32"), "in1": ("bfloat16", "float32"), "concat_result": ("bfloat16", "float32"),
    }  # fmt: skip


def test_without_types_nothing_is_said(judge):
    verdict = judge("{}", RELU.format("double"), head="ops: {{Relu: {{role: active}}}}")
    assert (verdict.ok, dict(verdict.types), verdict.role) == (True, {}, "active")


def test_every_element_type_of_onnx_has_its_name():
    known = {dtype_name(ir.Value(name="x", type=ir.TensorType(dtype))) for dtype in ir.DataType}
    assert known - {""} == set(DTYPES)
