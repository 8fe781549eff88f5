"""The models that mutants are made of: small, and together every kind of field that an ONNX file has."""

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

HEAD = '<ir_version: 10, opset_import: ["": 22{more}]>\n'
RNG = np.random.default_rng(7)


def text(body, more="", weights=(), functions=""):
    """A model from ONNX text, with random float weights of the given shapes."""
    model = onnx.parser.parse_model(HEAD.format(more=more) + body + functions)
    for name, shape in weights:
        array = RNG.normal(0, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def convolutions():
    return text(
        """g (float[1,3,8,8] x) => (float[1,8] y) {
             [conv] c = Conv <pads = [1, 1, 1, 1], group = 1> (x, w, b)
             [norm] n = BatchNormalization <epsilon = 0.001> (c, scale, shift, mean, variance)
             [relu] r = Relu (n)  [pool] p = GlobalAveragePool (r)  [flat] y = Flatten <axis = 1> (p) }""",
        weights=[("w", (8, 3, 3, 3)), ("b", 8), ("scale", 8), ("shift", 8), ("mean", 8)],
    )


def with_variance(model):
    """Variances must be positive."""
    model.graph.initializer.append(numpy_helper.from_array(np.full(8, 0.5, np.float32), "variance"))
    return model


def perceptron():
    return text(
        "g (float[N,16] x) => (float[N,4] y) { a = Gemm <transB = 1> (x, w1, b1)  h = Tanh (a)  y = MatMul (h, w2) }",
        weights=[("w1", (32, 16)), ("b1", 32), ("w2", (32, 4))],
    )


def external():
    """Its weight lies in `mutant.bin`, which `write` puts beside it."""
    model = perceptron()
    for tensor in model.graph.initializer:
        if tensor.name == "w1":
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "mutant.bin"), ("offset", "64"), ("length", str(32 * 16 * 4))):
                tensor.external_data.add(key=key, value=value)
    return model


def branches():
    return text(
        """g (float[2,4] x) => (float[2,4] y) <float zero = {0.0}> {
             s = ReduceSum <keepdims = 0> (x)  c = Greater (s, zero)
             [if] y = If (c) <
               then_branch = t () => (float[2,4] p) { p = Add (x, bias) },
               else_branch = e () => (float[2,4] q) { d = Mul (x, bias)  q = Relu (d) }> }""",
        weights=[("bias", 4)],
    )


def loop():
    return text(
        """g (float[2,4] x) => (float[2,4] y, float[K,2,4] all) <int64 n = {3}> {
             [loop] y, all = Loop (n, , x) <
               body = b (int64 i, bool k, float[2,4] v) => (bool k1, float[2,4] w, float[2,4] o) {
                 k1 = Identity (k)  m = MatMul (v, a)  w = Tanh (m)  o = Abs (w) }> }""",
        weights=[("a", (4, 4))],
    )


def scan():
    return text(
        """g (float[4] s, float[5,4] xs) => (float[4] last, float[5,4] all) {
             [scan] last, all = Scan <num_scan_inputs = 1,
               body = b (float[4] h, float[4] e) => (float[4] g, float[4] o) {
                 t = Add (h, e)  g = Tanh (t)  o = Mul (g, e) }> (s, xs) }"""
    )


def functions():
    return text(
        "g (float[N,4] x) => (float[N,4] y) { [f] a = local.Outer <alpha = 0.5> (x)  [h] y = local.Inner (a, x) }",
        more=', "local": 1',
        functions="""
        <domain: "local", opset_import: ["": 22, "local": 1]>
        Outer <alpha> (u) => (v) { k = Constant <value = float[4] {1.0, 2.0, 3.0, 4.0}> ()
          e = Elu <alpha: float = @alpha> (u)  v = local.Inner (e, k) }
        <domain: "local", opset_import: ["": 22]>
        Inner (p, q) => (r) { s = Add (p, q)  r = Relu (s) }""",
    )


def sparse():
    model = text("g (float[N,4] x) => (float[N,4] y) { m = MatMul (x, w)  y = Relu (m) }")
    values = numpy_helper.from_array(np.array([0.5, -1, 2], np.float32), "w")
    places = numpy_helper.from_array(np.array([1, 6, 11], np.int64), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 4]))
    return model


def quantized():
    return text(
        """g (float[1,8] x) => (float[1,4] y)
           <float sx = {0.1}, uint8 zx = {128}, float[4] sw = {0.1, 0.2, 0.1, 0.05}, int8[4] zw = {0, 0, 0, 0},
            int8[2,4] wq = {1, -2, 3, 4, -5, 6, 7, -8}> {
             q = QuantizeLinear (x, sx, zx)  d = DequantizeLinear (q, sx, zx)
             w = DequantizeLinear <axis = 1> (wq, sw, zw)  ww = Concat <axis = 0> (w, w, w, w)  y = MatMul (d, ww) }"""
    )


def sequences():
    return text(
        """g (float[2,4] x) => (float[4,4] y) <int64 one = {1}> {
             a = Relu (x)  s = SequenceConstruct (x, a)  e = SequenceAt (s, one)
             t = SequenceInsert (s, e)  u = SequenceErase (t, one)  y = ConcatFromSequence <axis = 0> (u) }"""
    )


def attention():
    return text(
        """g (float[N,6,8] x) => (float[N,6,8] y)
           <float scale = {0.35}, int64[4] heads = {0, 6, 2, 4}, int64[3] flat = {0, 6, 8}> {
             q = MatMul (x, wq)  k = MatMul (x, wk)
             q4 = Reshape (q, heads)  k4 = Reshape (k, heads)
             qt = Transpose <perm = [0, 2, 1, 3]> (q4)  kt = Transpose <perm = [0, 2, 3, 1]> (k4)
             s = MatMul (qt, kt)  m = Mul (s, scale)  p = Softmax <axis = -1> (m)
             o = MatMul (p, qt)  ot = Transpose <perm = [0, 2, 1, 3]> (o)  f = Reshape (ot, flat)
             r = Add (f, x)  y = LayerNormalization <axis = -1> (r, g1, b1) }""",
        weights=[("wq", (8, 8)), ("wk", (8, 8)), ("g1", 8), ("b1", 8)],
    )


def shapes():
    return text(
        """g (float[N,4,6] x) => (float[A,B] y) <int64 i0 = {0}, int64[1] minus = {-1}, int64[1] zero = {0}> {
             s = Shape (x)  n = Gather <axis = 0> (s, i0)  n1 = Unsqueeze (n, zero)
             t = Concat <axis = 0> (n1, minus)  r = Reshape (x, t)
             z = ConstantOfShape <value = float[1] {0.5}> (n1)  h = ReduceMean <keepdims = 0> (z)
             c = Cast <to = 1> (s)  m = ReduceMax <keepdims = 0> (c)  d = Div (r, m)  y = Add (d, h) }"""
    )


def recurrent():
    return text(
        """g (float[5,1,3] x) => (float[5,1,1,4] y, float[1,1,4] h, float[1,1,4] c) {
             [lstm] y, h, c = LSTM <hidden_size = 4, direction = "forward"> (x, w, r, b) }""",
        weights=[("w", (1, 16, 3)), ("r", (1, 16, 4)), ("b", (1, 32))],
    )


def choices():
    return text(
        """g (float[3,8] x) => (float[3,2] y, int64[3,2] i, float[3,8] z)
           <int64[1] k = {2}, float[2] edges = {-1.0, 1.0}> {
             y, i = TopK <axis = 1, largest = 1> (x, k)  lo, hi = Split <axis = 0, num_outputs = 2> (edges)
             l0 = Squeeze (lo)  h0 = Squeeze (hi)  cl = Clip (x, l0, h0)
             b = Greater (x, cl)  w = Where (b, cl, x)  z = Einsum <equation = "ij,ij->ij"> (w, x) }"""
    )


def contributed():
    return text(
        """g (float[N,8] x) => (float[N,8] y) {
             a = com.microsoft.Gelu (x)  b = com.microsoft.BiasGelu (a, bias)  y = Sigmoid (b) }""",
        more=', "com.microsoft": 1',
        weights=[("bias", 8)],
    )


def texts():
    return text(
        """g (string[N] s) => (float[N] y) {
             l = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_floats = [1.0, 2.0]> (s)  y = Neg (l) }""",
        more=', "ai.onnx.ml": 2',
    )


def nested():
    return text(
        """g (float[3,2] x, bool c) => (float[3,2] y) <int64 n = {2}> {
             [outer] y = Loop (n, , x) <
               body = b (int64 i, bool k, float[3,2] v) => (bool k1, float[3,2] w) {
                 k1 = Identity (k)
                 [inner] w = If (c) <
                   then_branch = t () => (float[3,2] p) {
                     o = Constant <value = float[2] {0.5, 0.25}> ()  p = Mul (v, o) },
                   else_branch = e () => (float[3,2] q) { q = Sub (v, x) }> }> }"""
    )


def images():
    return text(
        """g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] scales = {1.0, 1.0, 2.0, 2.0}> {
             a = AveragePool <kernel_shape = [2, 2], strides = [1, 1], auto_pad = "SAME_UPPER"> (x)
             m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a)
             u = Resize <mode = "nearest"> (m, , scales)
             p = ConvTranspose <strides = [1, 1], kernel_shape = [1, 1]> (u, w)
             y = LeakyRelu <alpha = 0.1> (p) }""",
        weights=[("w", (2, 2, 1, 1))],
    )


BASES = {
    "attention": attention,
    "branches": branches,
    "choices": choices,
    "contributed": contributed,
    "convolutions": lambda: with_variance(convolutions()),
    "external": external,
    "functions": functions,
    "images": images,
    "loop": loop,
    "nested": nested,
    "perceptron": perceptron,
    "quantized": quantized,
    "recurrent": recurrent,
    "scan": scan,
    "sequences": sequences,
    "shapes": shapes,
    "sparse": sparse,
    "texts": texts,
}
EXTERNAL_DATA = bytes(64) + RNG.normal(0, 0.5, (32, 16)).astype(np.float32).tobytes()
