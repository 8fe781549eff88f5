"""Each fusion recognizes what exporters write, computes the same, and leaves alone what only looks like it."""

# ruff: noqa: E501  (a form of an exporter on a line)

import re

import dovetail
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context, Pipeline
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_text

HEAD = '<ir_version: 11, opset_import: ["": {opset}]> g '
VECTOR = "(float[2,3,8] x) => (float[2,3,8] y) "
SCALARS = "<float three = {3}, float zero = {0}, float six = {6}, float sixth = {0.16666667}, float one = {1}, float two = {2}, float half = {0.5}> "
GELU = "<float root = {1.4142135}, float inverse = {0.70710677}, float one = {1}, float two = {2}, float half = {0.5}, float c = {0.7978846}, float k = {0.044715}, float three = {3}> "

FORMS = {
    "fuse-hardsigmoid": {
        "quotient": SCALARS + "{ a = Add(x, three) b = Clip(a, zero, six) y = Div(b, six) }",
        "product": SCALARS + "{ a = Add(three, x) b = Clip(a, zero, six) y = Mul(sixth, b) }",
        "line": SCALARS + "{ a = Mul(x, sixth) b = Add(a, half) y = Clip(b, zero, one) }",
        "divided": SCALARS + "{ a = Div(x, six) b = Add(half, a) y = Clip(b, zero, one) }",
    },
    "fuse-hardswish": {
        "gate": "{ a = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(a, x) }",
        "paddle": SCALARS + "{ a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six) }",
        "torchvision": SCALARS + "{ a = Add(x, three) b = Clip(a, zero, six) c = Div(b, six) y = Mul(x, c) }",
        "tensorflow": SCALARS + "{ a = Add(x, three) b = Clip(a, zero, six) c = Mul(sixth, b) y = Mul(c, x) }",
        "scaled": SCALARS + "{ a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, sixth) y = Mul(c, b) }",
    },
    "fuse-swish": {
        "silu": "{ a = Sigmoid(x) y = Mul(a, x) }",
        "quick gelu": "<float k = {1.702}> { a = Mul(k, x) b = Sigmoid(a) y = Mul(x, b) }",
    },
    "fuse-mish": {
        "softplus": "{ a = Softplus(x) b = Tanh(a) y = Mul(x, b) }",
        "logarithm": "<float one = {1}> { a = Exp(x) b = Add(a, one) c = Log(b) d = Tanh(c) y = Mul(d, x) }",
    },
    "fuse-gelu": {
        "torch": GELU + "{ a = Div(x, root) b = Erf(a) d = Add(b, one) e = Mul(x, d) y = Mul(e, half) }",
        "halved first": GELU + "{ h = Mul(half, x) a = Mul(x, inverse) b = Erf(a) d = Add(one, b) y = Mul(h, d) }",
        "halved inside": GELU + "{ a = Div(x, root) b = Erf(a) d = Add(b, one) e = Mul(d, half) y = Mul(x, e) }",
        "divided": GELU + "{ a = Div(x, root) b = Erf(a) d = Add(b, one) e = Mul(x, d) y = Div(e, two) }",
        "new gelu": GELU + """{ p = Pow(x, three) q = Mul(k, p) r = Add(x, q) s = Mul(r, c) t = Tanh(s)
            u = Add(t, one) h = Mul(x, half) y = Mul(h, u) }""",
        "cube": GELU + """{ w = Mul(x, x) p = Mul(w, x) q = Mul(p, k) r = Add(q, x) s = Mul(c, r) t = Tanh(s)
            u = Add(one, t) e = Mul(x, u) y = Mul(half, e) }""",
        "fast": GELU + """{ p = Mul(x, k) q = Mul(p, x) r = Add(q, one) v = Mul(x, c) s = Mul(v, r) t = Tanh(s)
            u = Add(t, one) h = Mul(x, half) y = Mul(h, u) }""",
        "square": GELU + """{ w = Mul(x, x) q = Mul(w, k) r = Add(q, one) v = Mul(x, r) s = Mul(v, c) t = Tanh(s)
            u = Add(t, one) h = Mul(x, half) y = Mul(u, h) }""",
    },
}  # fmt: skip

NORM = "<int64[1] last = {-1}, float two = {2}, float one = {1}, float e = {0.00001}, float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {8, 7, 6, 5, 4, 3, 2, 1}> "  # fmt: skip
MEAN = "m = ReduceMean(x, last) d = Sub(x, m) "
FORMS |= {
    "fuse-layernorm": {
        "torch": NORM + "{" + MEAN + "p = Pow(d, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) n = Div(d, r) q = Mul(n, w) y = Add(q, b) }",
        "product": NORM + "{" + MEAN + "p = Mul(d, d) v = ReduceMean(p, last) s = Add(e, v) r = Sqrt(s) i = Reciprocal(r) n = Mul(i, d) q = Mul(w, n) y = Add(b, q) }",
        "two differences": NORM + "{" + MEAN + "f = Sub(x, m) p = Pow(f, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) n = Div(d, r) q = Mul(n, w) y = Add(q, b) }",
        "no bias": NORM + "{" + MEAN + "p = Pow(d, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) n = Div(d, r) y = Mul(n, w) }",
        "plain": NORM + "{" + MEAN + "p = Pow(d, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) y = Div(d, r) }",
        "keras": NORM + "{" + MEAN + "p = Mul(d, d) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) i = Reciprocal(r) f = Mul(i, w) g = Mul(x, f) h = Mul(m, f) o = Sub(b, h) y = Add(g, o) }",
        "two axes": "<int64[2] last = {-1, 1}, float two = {2}, float e = {0.001}> {" + MEAN + "p = Pow(d, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) y = Div(d, r) }",
    },
    "fuse-rmsnorm": {
        "llama": NORM + "{ p = Pow(x, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) i = Div(one, r) n = Mul(x, i) y = Mul(w, n) }",
        "reciprocal": NORM + "{ p = Mul(x, x) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) i = Reciprocal(r) n = Mul(x, i) y = Mul(n, w) }",
        "quotient": NORM + "{ p = Pow(x, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) n = Div(x, r) y = Mul(n, w) }",
        "power": NORM.replace("> ", ", float h = {-0.5}> ") + "{ p = Mul(x, x) v = ReduceMean(p, last) s = Add(v, e) i = Pow(s, h) n = Mul(x, i) y = Mul(n, w) }",
    },
}  # fmt: skip

ROTARY = "<int64[1] zero = {0}, int64[1] four = {4}, int64[1] last = {3}, int64[1] far = {9223372036854775807}, int64[1] heads = {1}, int64[2] halves = {4, 4}> "  # fmt: skip
ROTATED = "f = Slice(x, zero, four, last) b = Slice(x, four, far, last) n = Neg(b) r = Concat<axis = -1>(n, f) "
ANGLES = "(float[2,3,5,8] x, float[2,5,4] t) => (float[2,3,5,8] y) "
SINES = "a = Concat<axis = -1>(t, t) c2 = Cos(a) s2 = Sin(a) c = Unsqueeze(c2, heads) s = Unsqueeze(s2, heads) "
PAIRED = "(float[B,S,H,8] x, float[B,S,4] t) => (float[B,S,H,8] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] last = {-1}, int64[1] far = {9223372036854775807}, int64[5] twice = {1, 1, 1, 1, 2}, int64[4] flat = {0, 0, 0, -1}> "
REPEAT = "c0 = Cos(t) c1 = Unsqueeze(c0, two) c2 = Unsqueeze(c1, last) c3 = Tile(c2, twice) c = Reshape(c3, flat) s0 = Sin(t) s1 = Unsqueeze(s0, two) s2 = Unsqueeze(s1, last) s3 = Tile(s2, twice) s = Reshape(s3, flat) "
NEIGHBORS = "b = Slice(x, one, far, three, two) f = Slice(x, zero, far, three, two) n = Neg(b) n1 = Unsqueeze(n, last) f1 = Unsqueeze(f, last) r0 = Concat<axis = -1>(n1, f1) r = Reshape(r0, flat) "
PAIRED_END = "p = Mul(x, c) u = Mul(r, s) y = Add(p, u) }"
IN_ROWS = {"B": 2, "S": 5, "H": 3}


def paired(repeat=REPEAT, heads_first=False, end=PAIRED_END):
    """A rotary embedding of neighbors; its extents are known."""
    text = PAIRED + "{" + repeat + NEIGHBORS + end
    if heads_first:
        text = (
            text.replace("float[B,S,H,8]", "float[B,H,S,8]")
            .replace("Unsqueeze(c0, two)", "Unsqueeze(c0, one)")
            .replace("Unsqueeze(s0, two)", "Unsqueeze(s0, one)")
        )
    for letter, number in IN_ROWS.items():
        text = re.sub(rf"\b{letter}\b(?=[,\]])", str(number), text)
    return text


QKV = "(float[2,3,5,8] q, float[2,3,7,8] k, float[2,3,7,8] v, float[2,1,5,7] m) => (float[2,3,5,8] y) <float f = {0.35355338}, float g = {2.828427}, float h = {0.5946036}, float zero = {0}> "
FORMS |= {
    "fuse-rotary": {
        "llama": ANGLES + ROTARY + "{" + SINES + ROTATED + "p = Mul(x, c) u = Mul(r, s) y = Add(p, u) }",
        "split": ANGLES + ROTARY + "{" + SINES + "f, b = Split<axis = 3>(x, halves) n = Neg(b) r = Concat<axis = 3>(n, f) p = Mul(c, x) u = Mul(s, r) y = Add(u, p) }",
        "positions of one row": ANGLES.replace("float[2,5,4] t", "float[1,5,4] t") + ROTARY + "{" + SINES + ROTATED + "p = Mul(x, c) u = Mul(r, s) y = Add(p, u) }",
        "neighbors": paired(),
        "neighbors, heads first": paired(heads_first=True),
        "neighbors, repeated by Concat": paired(REPEAT.replace("Tile(c2, twice)", "Concat<axis = -1>(c2, c2)")),
        "neighbors, repeated by Expand": paired(REPEAT.replace("Tile(s2, twice)", "Expand(s2, twice)")),
        "neighbors, heads added later": paired("c0 = Cos(t) s0 = Sin(t) ch = Unsqueeze(c0, last) ce = Concat<axis = 3>(ch, ch) cf = Reshape(ce, join) c = Unsqueeze(cf, two) sh = Unsqueeze(s0, last) se = Concat<axis = 3>(sh, sh) sf = Reshape(se, join) s = Unsqueeze(sf, two) ").replace("int64[4] flat", "int64[3] join = {0, 0, -1}, int64[4] flat"),
        "one position for all": ANGLES.replace("float[2,5,4] t", "float[2,1,4] t") + ROTARY + "{" + SINES + ROTATED + "p = Mul(x, c) u = Mul(r, s) y = Add(p, u) }",
    },
    "fuse-attention": {
        "divided": QKV + "{ t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) b = Div(a, g) c = Add(b, m) d = Softmax<axis = -1>(c) y = MatMul(d, v) }",
        "scaled": QKV + "{ t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) b = Mul(f, a) d = Softmax(b) y = MatMul(d, v) }",
        "torch": QKV + "{ t = Transpose<perm = [0, 1, 3, 2]>(k) o = Mul(q, h) p = Mul(t, h) a = MatMul(o, p) c = Add(a, m) d = Softmax<axis = -1>(c) y = MatMul(d, v) }",
        "cast": QKV + "{ t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) b = Mul(f, a) d = Softmax(b) w = Cast<to = 1>(d) y = MatMul(w, v) }",
        "queries": QKV + "{ t = Transpose<perm = [0, 1, 3, 2]>(k) o = Div(q, g) a = MatMul(o, t) c = Add(a, m) d = Softmax<axis = 3>(c) y = MatMul(d, v) }",
        "unscaled": QKV + "{ t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) d = Softmax(a) y = MatMul(d, v) }",
        "mask of one row": QKV.replace("float[2,1,5,7] m", "float[2,1,1,7] m") + "{ t = Transpose<perm = [0, 1, 3, 2]>(k) a = MatMul(q, t) b = Div(a, g) c = Add(b, m) d = Softmax(c) y = MatMul(d, v) }",
        "sequences": QKV.replace("float[2,3,7,8] k", "float[2,7,3,8] k") + "{ t = Transpose<perm = [0, 2, 3, 1]>(k) a = MatMul(q, t) b = Div(a, g) d = Softmax(b) y = MatMul(d, v) }",
    },
}  # fmt: skip
# The same, for ONNX Runtime's own operators.
FORMS |= {"fuse-multi-head-attention": FORMS["fuse-attention"], "fuse-contrib-rotary": FORMS["fuse-rotary"]}
AROUND = ("Concat", "Cos", "Expand", "Max", "Shape", "Sin", "Slice", "Transpose")  # what the operators read
AROUND_CONTRIB = (*AROUND, "LessOrEqual", "Mul", "Range", "ReduceMax", "Reshape", "Squeeze", "Unsqueeze", "Where")
ROWS = [(fusion, form) for fusion, forms in FORMS.items() for form in forms]


@pytest.fixture(scope="module")
def plugins():
    return load_plugins()


@pytest.fixture
def fused(plugins):
    """`fused(text, name, opset)`: the model before and after the pass, and its remarks."""

    def make(text, name="", opset=24):
        text = HEAD.format(opset=opset) + (text if text.startswith("(") else VECTOR + text)
        before, after = open_text(text, "model"), open_text(text, "model")
        ctx = Context(plugins=plugins)
        options = f"{{only={name}}}" if name else ""
        Pipeline.parse(f"normalize,fuse{options},dead-code", plugins.registry).run(after, ctx)
        return before, after, ctx.remarks

    return make


def run(model, inputs):
    content = ir.to_proto(model.ir).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {each.name: inputs[each.name] for each in session.get_inputs()})


def random_inputs(model):
    rng = np.random.default_rng(7)
    return {
        value.name: rng.normal(0, 3, value.shape.numpy()).astype(value.dtype.numpy()) for value in model.graph.inputs
    }


@pytest.mark.parametrize(("name", "form"), ROWS, ids=[f"{name} {form}" for name, form in ROWS])
def test_a_form_becomes_one_operator_that_computes_the_same(fused, plugins, name, form):
    before, after, remarks = fused(FORMS[name][form], name)
    fusion = plugins.registry.edit[name]
    around = AROUND_CONTRIB if fusion.domain else AROUND
    made = [(node.domain, node.op_type) for node in after.nodes() if node.op_type not in around]
    assert made == [(fusion.domain, fusion.operator)]
    inputs = random_inputs(before)
    np.testing.assert_allclose(run(after, inputs)[0], run(before, inputs)[0], rtol=2e-5, atol=2e-5)


GROUPED = """(float[B,6,S,8] q, float[B,2,P,8] past, float[B,2,S,8] k, float[B,2,T,8] v, float[B,1,S,T] m) => (float[B,6,S,8] y, float[B,2,T,8] present)
    <float f = {0.35355338}, float g = {0.5946036}, float zero = {0}, int64[1] two = {2}, int64[4] all = {0, 6, -1, 8}, int64[1] last = {-1},
     int64[3] flat = {-1, 7, 8}, int64[5] times = {1, 1, 3, 1, 1}> {
    present = Concat<axis = 2>(past, k) SCALED }"""
REPEATED = "{x}u = Unsqueeze({y}, two) {x}e = Expand({x}u, times) {x}r = Reshape({x}e, all) "
SHARED = REPEATED.format(x="k", y="present") + REPEATED.format(x="v", y="v")
PLAIN_SCORES = "kt = Transpose<perm = [0, 1, 3, 2]>(kr) a = MatMul(q, kt) c = Mul(a, f) "
ENDS = {
    "masked": PLAIN_SCORES + "d = Add(c, m) w = Softmax<axis = -1>(d) y = MatMul(w, vr)",
    "unmasked": PLAIN_SCORES + "w = Softmax<axis = -1>(c) y = MatMul(w, vr)",
    "scaled apart": "kt = Transpose<perm = [0, 1, 3, 2]>(kr) qz = Mul(q, g) kz = Mul(kt, g) a = MatMul(qz, kz) d = Add(a, m) w = Softmax(d) y = MatMul(w, vr)",
}
IN_NUMBERS = {"B": 2, "P": 3, "S": 4, "T": 7}


def grouped(end, numbers=None, shared=SHARED):
    """Attention of six heads of queries and two of keys with a cache; extents are open unless they are given."""
    text = GROUPED.replace("SCALED", shared + end)
    for letter, number in (numbers or {}).items():
        text = re.sub(rf"\b{letter}\b(?=[,\]])", str(number), text)
    return text


@pytest.mark.parametrize("form", ENDS)
@pytest.mark.parametrize("numbers", [{}, IN_NUMBERS], ids=["open", "known"])
def test_shared_heads_are_not_repeated(fused, form, numbers):
    before, after, _ = fused(grouped(ENDS[form], numbers), "fuse-grouped-attention")
    assert {node.op_type for node in after.nodes()} <= {"Concat", "Max", "Attention"}
    rng, inputs = np.random.default_rng(7), {}
    for value in before.graph.inputs:
        shape = [extent if isinstance(extent, int) else IN_NUMBERS[extent.value] for extent in value.shape]
        inputs[value.name] = rng.normal(0, 1, shape).astype(np.float32)
    for hidden in (-1e4, float(np.finfo(np.float32).min)):
        inputs["m"][0, 0, 0], inputs["m"][1, 0, :, 5:] = hidden, hidden  # a row that is hidden whole is an average
        for found, wanted in zip(run(after, inputs), run(before, inputs), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["fuse-attention", "fuse-multi-head-attention"])
def test_guarded_rows_that_a_mask_hides_whole_stay_zero(fused, name):
    """PyTorch's exporter guards against NaN, which rows give that are minus infinity throughout."""
    text = (
        QKV.replace("float[2,1,5,7] m", "bool[2,1,5,7] m").replace("zero = {0}", "zero = {0}, float low")
        + """{
        x = Where(m, zero, low) t = Transpose<perm = [0, 1, 3, 2]>(k) o = Mul(q, g) a = MatMul(o, t) c = Add(x, a)
        d = Softmax<axis = -1>(c) i = IsNaN(d) w = Where(i, zero, d) y = MatMul(w, v) }"""
    )
    for low, hidden in (("-inf", 0), ("-1e30", 1)):
        before, after, _ = fused(text.replace("float low", f"float low = {{{low}}}"), name)
        assert "IsNaN" not in {node.op_type for node in after.nodes()}
        inputs = random_inputs(before)
        inputs["m"] = np.ones((2, 1, 5, 7), bool)
        inputs["m"][1, 0, 2] = False
        (found,), (wanted,) = run(after, inputs), run(before, inputs)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
        assert (found[1, :, 2] != 0).any() == hidden


@pytest.mark.parametrize("low", ["-1e4", "-1e9", "-3.4e38"])
@pytest.mark.parametrize("opset", [17, 20])
def test_rows_that_a_mask_hides_whole_are_averages_in_float16(low, opset):
    """Rows of padding: float16 does not have such numbers, and their infinity would become NaN everywhere."""
    text = HEAD.format(opset=opset) + QKV.replace("float[2,1,5,7] m", "bool[2,1,5,7] m").replace("zero = {0}", f"zero = {{0}}, float low = {{{low}}}") + """{
        x = Where(m, zero, low) t = Transpose<perm = [0, 1, 3, 2]>(k) o = Mul(q, g) a = MatMul(o, t) c = Add(x, a)
        d = Softmax<axis = -1>(c) y = MatMul(d, v) }"""  # fmt: skip
    compiled = dovetail.compile(open_text(text, "model"), ["gpu-fp16:attention=fused"], verify=False)
    assert "MultiHeadAttention" in {node.op_type for node in compiled.model.nodes()}
    before = open_text(text, "model")
    inputs = {name: array / 3 for name, array in random_inputs(before).items()}
    inputs["m"] = np.ones((2, 1, 5, 7), bool)
    inputs["m"][1, 0, 2], inputs["m"][0, 0, 1, 3:] = False, False
    (found,) = compiled.run(inputs).values()
    np.testing.assert_allclose(found, run(before, inputs)[0], rtol=0.01, atol=0.01)


@pytest.mark.parametrize(
    ("shared", "end"),
    [
        (SHARED.replace("vu = Unsqueeze(v, two)", "vu = Unsqueeze(v, one)"), ENDS["masked"]),  # repeats the row of heads
        (SHARED, ENDS["masked"].replace("axis = -1", "axis = 1")),
        (SHARED, ENDS["masked"].replace("MatMul(w, vr)", "MatMul(w, vr) z = Neg(w)")),
        (SHARED, ENDS["masked"].replace("y = ", "i = IsNaN(w) o = Where(i, zero, w) y = ").replace("(w, vr)", "(o, vr)")),
    ],
    ids=["repeated otherwise", "another softmax", "weights read by others", "hidden rows of 0"],
)  # fmt: skip
def test_attention_that_only_looks_shared_stays(fused, shared, end):
    text = grouped(end, IN_NUMBERS, shared).replace("int64[1] two", "int64[1] one = {1}, int64[1] two")
    if "z =" in end:
        text = text.replace("=> (", "=> (float[2,6,4,7] z, ")
    _, after, _ = fused(text, "fuse-grouped-attention")
    assert "Attention" not in {node.op_type for node in after.nodes()}


HALVES = FORMS["fuse-rotary"]["llama"]
UNLIKE = {
    "fuse-hardswish": {
        "another slope": "{ a = HardSigmoid(x) y = Mul(a, x) }",
        "another bound": SCALARS + "{ a = Add(x, three) b = Clip(a, zero, three) c = Mul(x, b) y = Div(c, six) }",
        "another value": SCALARS + "{ z = Neg(x) a = Add(z, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six) }",
        "gate read twice": "{ a = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) b = Mul(a, x) y = Add(a, b) }",
    },
    "fuse-gelu": {
        "another root": GELU + "{ a = Div(x, two) b = Erf(a) d = Add(b, one) e = Mul(x, d) y = Mul(e, half) }",
        "not halved": GELU + "{ a = Div(x, root) b = Erf(a) d = Add(b, one) y = Mul(x, d) }",
        "vector": "<float[8] root = {1, 1, 1, 1, 1, 1, 1, 2}, float one = {1}, float half = {0.5}> { a = Div(x, root) b = Erf(a) d = Add(b, one) e = Mul(x, d) y = Mul(e, half) }",
    },
    "fuse-layernorm": {
        "first axis": NORM.replace("{-1}", "{0}") + "{" + MEAN + "p = Pow(d, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) n = Div(d, r) q = Mul(n, w) y = Add(q, b) }",
        "cube": NORM.replace("two = {2}", "two = {3}") + "{" + MEAN + "p = Pow(d, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) n = Div(d, r) q = Mul(n, w) y = Add(q, b) }",
    },
    "fuse-rotary": {
        "halves that differ": HALVES.replace("a = Concat<axis = -1>(t, t)", "o = Neg(t) a = Concat<axis = -1>(t, o)"),
        "cosines of more rows": HALVES.replace("float[2,3,5,8] x", "float[1,3,5,8] x"),
        "cosines of other positions": HALVES.replace("float[2,3,5,8] x", "float[2,3,1,8] x"),
        "other neighbor negated": paired().replace("n = Neg(b) n1 = Unsqueeze(n, last) f1 = Unsqueeze(f, last)", "n = Neg(f) n1 = Unsqueeze(n, last) f1 = Unsqueeze(b, last)"),
        "halves as cosines of neighbors": paired("a = Concat<axis = -1>(t, t) c0 = Cos(a) c = Unsqueeze(c0, two) s0 = Sin(a) s = Unsqueeze(s0, two) "),
        "neighbors of another axis": paired().replace("Slice(x, zero, far, three, two)", "Slice(x, zero, four, three)").replace("int64[4] flat", "int64[1] four = {4}, int64[4] flat"),
        "first half negated": HALVES.replace("n = Neg(b) r = Concat<axis = -1>(n, f)", "n = Neg(f) r = Concat<axis = -1>(n, b)"),
    },
    "fuse-attention": {
        "first softmax axis": FORMS["fuse-attention"]["scaled"].replace("Softmax(b)", "Softmax<axis = 2>(b)"),
        "queries of more heads": FORMS["fuse-attention"]["scaled"].replace("float[2,3,7,8] k, float[2,3,7,8] v", "float[2,1,7,8] k, float[2,1,7,8] v"),
    },
}  # fmt: skip
NOT_ROWS = [(fusion, form) for fusion, forms in UNLIKE.items() for form in forms]


@pytest.mark.parametrize(("name", "form"), NOT_ROWS, ids=[f"{name} {form}" for name, form in NOT_ROWS])
def test_what_only_looks_like_it_stays(fused, name, form):
    before, after, _ = fused(UNLIKE[name][form], name)
    assert [node.op_type for node in after.nodes()] == [node.op_type for node in before.nodes()]


def test_a_form_in_float16_widens_and_narrows(fused):
    """As models of language write an RMS norm: in float32, between casts."""
    text = """(float16[2,8] x) => (float16[2,8] y) <int64[1] last = {-1}, float two = {2}, float e = {0.00001}, float16[8] w> {
        u = Cast<to = 1>(x) p = Pow(u, two) v = ReduceMean(p, last) s = Add(v, e) r = Sqrt(s) i = Reciprocal(r)
        n = Mul(u, i) c = Cast<to = 10>(n) y = Mul(w, c) }"""
    _, after, _ = fused(text, "fuse-rmsnorm")
    assert [node.op_type for node in after.nodes()] == ["RMSNormalization"]


def test_constant_cosines_are_cut_in_halves(fused):
    angles = np.outer(np.arange(5), [1, 0.1, 0.01, 0.001])
    numbers = {
        name: ", ".join(map(str, np.tile(function(angles), 2).ravel()))
        for name, function in (("c", np.cos), ("s", np.sin))
    }
    text = f"""(float[1,3,5,8] x) => (float[1,3,5,8] y)
        {ROTARY.removesuffix("> ")}, float[5,8] c = {{{numbers["c"]}}}, float[5,8] s = {{{numbers["s"]}}}>
        {{ {ROTATED} p = Mul(x, c) u = Mul(r, s) y = Add(p, u) }}"""
    before, after, _ = fused(text, "fuse-rotary")
    assert [node.op_type for node in after.nodes()] == ["RotaryEmbedding"]
    inputs = random_inputs(before)
    np.testing.assert_allclose(run(after, inputs)[0], run(before, inputs)[0], rtol=2e-5, atol=2e-5)


def test_open_extents_of_exporters_are_fused(fused):
    """Batch, heads and positions are open, and positions have one row, which the operator does not broadcast."""
    text = f"""(float[B,H,S,8] x, float[1,T,4] t) => (float[B,H,S,8] y) {ROTARY}
        {{ {SINES} {ROTATED} p = Mul(x, c) u = Mul(r, s) y = Add(p, u) }}"""
    before, after, _ = fused(text, "fuse-rotary")
    assert "RotaryEmbedding" in {node.op_type for node in after.nodes()}
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((2, 3, 5, 8), np.float32), "t": rng.standard_normal((1, 5, 4), np.float32)}
    np.testing.assert_allclose(run(after, inputs)[0], run(before, inputs)[0], rtol=2e-5, atol=2e-5)


def test_keys_that_are_turned_with_computed_extents_are_fused(fused):
    """PyTorch's new exporter joins batch and heads of the keys with what it reads of their shape."""
    text = """(float[B,3,S,8] q, float[B,3,P,8] past, float[B,3,S,8] new, float[B,3,T,8] v) => (float[B,3,S,8] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {-2}, int64[1] last = {-1}, int64[1] three = {3},
         int64[1] far = {9223372036854775807}, float f = {0.35355338}> {
        k = Concat<axis = 2>(past, new) s = Shape<start = 0>(k)
        b = Slice(s, zero, one) t = Slice(s, two, last) d = Slice(s, last, far)
        flat = Concat<axis = 0>(last, t, d) m = Reshape(k, flat) u = Transpose<perm = [0, 2, 1]>(m)
        apart = Concat<axis = 0>(b, three, d, t) r = Reshape(u, apart)
        a = MatMul(q, r) c = Mul(a, f) w = Softmax<axis = -1>(c) y = MatMul(w, v) }"""
    before, after, _ = fused(text, "fuse-attention")
    assert "Attention" in {node.op_type for node in after.nodes()}
    numbers = {"B": 2, "S": 4, "P": 3, "T": 7}
    rng = np.random.default_rng(0)
    inputs = {
        value.name: rng.standard_normal(
            [one if isinstance(one, int) else numbers[one.value] for one in value.shape], np.float32
        )
        for value in before.graph.inputs
    }
    np.testing.assert_allclose(run(after, inputs)[0], run(before, inputs)[0], rtol=2e-5, atol=2e-5)


def test_the_longest_group_is_fused_and_says_what_it_replaces(fused):
    """All fusions at once: the swish contains a hard sigmoid."""
    text = (
        SCALARS
        + """{ [one] a = Add(x, three) [two] b = Clip(a, zero, six) [three] c = Div(b, six)
        [four] y = Mul(x, c) }"""
    )
    _, after, remarks = fused(text)
    assert [(node.name, node.op_type) for node in after.nodes()] == [("four", "HardSwish")]
    said = [(one.node, one.rule, one.why) for one in remarks if one.rule.startswith("fuse-")]
    assert said == [("four", "fuse-hardswish", "HardSwish replaces 'one', 'two', 'three', 'four'")]


def test_an_operator_that_the_opset_lacks_is_not_made(fused):
    _, after, remarks = fused(FORMS["fuse-gelu"]["torch"], "fuse-gelu", opset=18)
    assert "Erf" in {node.op_type for node in after.nodes()}
    assert "not applied: Gelu needs opset 20, and the model has 18" in [one.why for one in remarks]


def test_an_unknown_fusion_is_an_error(fused):
    with pytest.raises(DovetailError, match=r"unknown fusion 'fuse-gelo' \(did you mean 'fuse-gelu'"):
        fused(FORMS["fuse-gelu"]["torch"], "fuse-gelo")


def test_a_fusion_that_serves_one_engine_is_made_only_when_it_is_named():
    text = HEAD.format(opset=17) + """(float[N] x, int64[1] n) => (bool[M] y) <int64 zero = {0}, int64 one = {1}> {
        s = Shape(x) e = Squeeze(s) i = Range(zero, e, one) y = Less(i, n) }"""  # fmt: skip
    plugins = load_plugins()
    for passes, expected in (("fuse", 0), ("fuse{only=clamp-comparisons}", 1)):
        model = open_text(text, "masks")
        Pipeline.parse(f"normalize,{passes}", plugins.registry).run(model, Context(plugins=plugins))
        assert [node.op_type for node in model.nodes()].count("Clip") == expected
