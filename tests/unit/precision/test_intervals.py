"""How far values reach by their constants and types: integers that become floats, and ends that are known alone."""

import math

import pytest
from dovetail.passes import Context, Pipeline, Request
from dovetail_onnx.opening import open_text
from dovetail_precision.ranges.intervals import Intervals

HEAD = '<ir_version: 10, opset_import: ["": 22]>\n'
ANY = (-math.inf, math.inf)
# declaration of inputs and constants, nodes that make `y`, what is known of `y`
INTEGERS = {
    "bytes": ("(uint8[4] i)", "", "y = Cast <to = 1> (i)", (0, 255)),
    "signed bytes": ("(int8[4] i)", "", "y = Cast <to = 1> (i)", (-128, 127)),
    "flags": ("(bool[4] i)", "", "y = Cast <to = 1> (i)", (0, 1)),
    "16 bits": ("(int16[4] i)", "", "y = Cast <to = 1> (i)", (-32768, 32767)),
    "32 bits": ("(int32[4] i)", "", "y = Cast <to = 1> (i)", ANY),
    "64 bits": ("(int64[4] i)", "", "y = Cast <to = 1> (i)", ANY),
    "64 bits that are clipped": (
        "(int64[4] i)", "int64 a = {-3}, int64 b = {9}", "j = Clip (i, a, b)  y = Cast <to = 1> (j)", (-3, 9),
    ),
    "known extents": ("(float[4,700] i)", "", "j = Shape (i)  y = Cast <to = 1> (j)", (0, 700)),
    "extents that are not known": ("(float[N] i)", "", "j = Shape (i)  y = Cast <to = 1> (j)", (0, math.inf)),
    "an index": ("(float[N,30] i)", "", "j = ArgMax <axis = 1> (i)  y = Cast <to = 1> (j)", (0, 29)),
    "the largest of a row": (
        "(float[N,30] i)", "int64[1] k = {2}", "v, j = TopK (i, k)  y = Cast <to = 1> (j)", (0, 29),
    ),
    "a number of elements": ("(float[4,30] i)", "", "j = Size (i)  y = Cast <to = 1> (j)", (120, 120)),
    "bytes that are added up": (
        "(uint8[4] i)", "", "j = Cast <to = 7> (i)  k = Add (j, j)  y = Cast <to = 1> (k)", (0, 510),
    ),
    "bytes that wrap around": ("(uint8[4] i)", "", "j = Add (i, i)  y = Cast <to = 1> (j)", (0, 255)),
    "a product of bytes": (
        "(uint8[4,3] i)", "int8[3,2] w = {1, 2, 3, 4, 5, -6}", "j = MatMulInteger (i, w)  y = Cast <to = 1> (j)",
        (-4590, 4590),
    ),
    "a product of bytes from a zero point": (
        "(uint8[4,3] i)", "int8[3,2] w = {1, 2, 3, 4, 5, -6}, uint8 z = {200}",
        "j = MatMulInteger (i, w, z)  y = Cast <to = 1> (j)", (-3600, 3600),
    ),
    "a convolution of bytes": (
        "(uint8[1,3,4,4] i)", "int8[2,3,1,1] w = {1, 2, 3, 4, 5, -6}", "j = ConvInteger (i, w)  y = Cast <to = 1> (j)",
        (-4590, 4590),
    ),
    "a product of any depth": (
        "(uint8[4,3] i, int8[N,2] w)", "", "j = MatMulInteger (i, w)  y = Cast <to = 1> (j)", ANY,
    ),
    "bytes with a scale": (
        "(uint8[4] i)", "float s = {0.5}, uint8 z = {128}", "y = DequantizeLinear (i, s, z)", (-64, 63.5),
    ),
    "bytes with a scale that is computed": ("(uint8[4] i, float s)", "", "y = DequantizeLinear (i, s)", ANY),
    "a mask": (
        "(int64[4] i)", "float one = {1}, float far = {-3.4028234663852886e38}",
        "a = Cast <to = 1> (i)  b = Sub (one, a)  y = Mul (b, far)", (0, 0),
    ),
    "a mask of ten thousand": (
        "(int64[4] i)", "float one = {1}, float far = {-10000}",
        "a = Cast <to = 1> (i)  b = Sub (one, a)  y = Mul (far, b)", (-10000, 0),
    ),
    "a mask that is read otherwise too": (
        "(int64[4] i)", "float one = {1}, float far = {-10000}",
        "a = Cast <to = 1> (i)  b = Sub (one, a)  y = Mul (b, far)  c = Neg (a)", ANY,
    ),
}  # fmt: skip
FLOATS = {
    "a square": ("y = Mul (x, x)", (0, math.inf)),
    "an even power": ("y = Pow (x, two)", (0, math.inf)),
    "a square with an epsilon": ("a = Mul (x, x)  y = Add (a, eps)", (1e-5, math.inf)),
    "the mean of squares": ("a = Mul (x, x)  y = ReduceMean (a)", (0, math.inf)),
    "a norm that is guarded": ("a = ReduceL2 (x)  y = Max (a, eps)", (1e-5, math.inf)),
    "the inverse of a root": ("a = Mul (x, x)  b = Add (a, eps)  c = Sqrt (b)  y = Reciprocal (c)", (0, 316.2278)),
    "a negative power": ("a = Abs (x)  b = Max (a, two)  y = Pow (b, minus)", (0, 0.5)),
    "an odd power": ("y = Pow (x, three)", ANY),
    "the exponential of what is not known": ("y = Exp (x)", (0, math.inf)),
    "the exponential of a bound": ("a = Tanh (x)  y = Exp (a)", (math.exp(-1), math.e)),
    "a difference of bounds": ("a = Sigmoid (x)  y = Sub (two, a)", (1, 2)),
    "nothing": ("y = Add (x, x)", ANY),
}


@pytest.fixture
def known(fp16):
    """`known(signature, constants, nodes)`: the intervals of a model, and its value `y`."""

    def make(signature, constants, nodes):
        given = f"<{constants}>" if constants else ""
        model = open_text(
            f"{HEAD}g {signature} => (float end) {given} {{ {nodes}  end = ReduceSum <keepdims = 0> (y) }}", "t"
        )
        ctx = Context(Request.of("test-fp16"), plugins=fp16)
        Pipeline.parse("normalize", fp16.registry).run(model, ctx)
        values = {value.name: value for node in model.graph for value in node.outputs}
        return ctx.analysis(Intervals, model), values["y"]

    return make


@pytest.mark.parametrize(("signature", "constants", "nodes", "expected"), INTEGERS.values(), ids=INTEGERS)
def test_integers_reach_as_far_as_their_types_extents_and_products_say(known, signature, constants, nodes, expected):
    intervals, y = known(signature, constants, nodes)
    found = intervals.of(y)
    assert (found.low, found.high) == pytest.approx(expected)


@pytest.mark.parametrize(("nodes", "expected"), FLOATS.values(), ids=FLOATS)
def test_one_end_may_be_known_alone(known, nodes, expected):
    constants = "float eps = {1e-5}, float two = {2}, float three = {3}, float minus = {-1}"
    intervals, y = known("(float[4,8] x)", constants, nodes)
    found = intervals.of(y)
    assert (found.low, found.high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("y = Cast <to = 1> (i)", True),
        ("a = Cast <to = 1> (i)  b = Neg (a)  y = Reshape (b, flat)", True),
        ("a = Cast <to = 1> (i)  y = Sub (a, x)", True),
        ("a = Cast <to = 1> (i)  y = Concat <axis = 0> (x, a)", True),
        ("a = Cast <to = 1> (i)  y = Mul (a, x)", False),
        ("a = Cast <to = 1> (i)  y = Clip (a, x, x)", False),
        ("a = Cast <to = 1> (i)  y = Tanh (a)", False),
        ("y = Add (x, x)", False),
    ],
)
def test_an_integer_of_any_size_stays_one_until_something_scales_or_bounds_it(known, nodes, expected):
    intervals, y = known("(int32[4] i, float[4] x)", "int64[1] flat = {-1}", nodes)
    assert (id(y) in intervals.unknown_integers) is expected
