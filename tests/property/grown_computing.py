"""Steps of a random graph that compute: functions, products, norms, numbers of other types."""

import numpy as np
from onnx import TensorProto, helper

from .grown_values import axes_form, broadcasts, floats, integers, pick

UNARY = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "LeakyRelu": {"alpha": 0.1}, "HardSigmoid": {"alpha": 0.2}, "Elu": {},
    "Softplus": {}, "Abs": {}, "Neg": {}, "Erf": {}, "Identity": {}, "HardSwish": {}, "Sin": {}, "Softsign": {},
    "Selu": {}, "Floor": {}, "Sign": {},
}  # fmt: skip


def unary(g):
    op_type = str(g.rng.choice(list(UNARY)))
    g.add(op_type, floats(g), **UNARY[op_type])


def clip(g):
    g.add("Clip", floats(g), g.number(-0.5), g.number(0.75) if g.rng.random() < 0.7 else "")


def positive(g):
    """Operators that take positive numbers."""
    bounded = g.add("Add", g.add("Abs", floats(g)), g.number(0.5))
    op_type = str(g.rng.choice(["Sqrt", "Log", "Reciprocal", "Pow"]))
    g.add(op_type, bounded, *([g.number(float(g.rng.choice([0.5, 1.5])))] if op_type == "Pow" else []))


def binary(g):
    one = floats(g)
    shape = g.arrays[one].shape
    op_type = str(g.rng.choice(["Add", "Mul", "Sub", "Max", "Min", "Add", "Mul", "PRelu"]))
    kind = g.rng.integers(4)
    if op_type == "PRelu" or kind == 0 and len(shape) >= 2:
        other = g.normal(*shape[1:2], *[1] * (len(shape) - 2), scale=0.4) if len(shape) > 1 else g.number(0.25)
    elif kind == 1:
        other = g.number(float(g.rng.choice([0.5, 2.0, 0.125, -1.0])))
    else:
        other = pick(g, lambda array: array.dtype == g.float and broadcasts(array.shape, shape))
    g.add(op_type, *([one, other] if op_type == "PRelu" or g.rng.random() < 0.7 else [other, one]))


def where(g):
    value = floats(g)
    truth = g.add(str(g.rng.choice(["Greater", "Less"])), value, g.number(0.1), keep=False)
    g.add("Where", truth, value, g.number(-2.0))


def swish(g):
    value = floats(g)
    g.add("Mul", value, g.add("Sigmoid", value))


def normalize(g):
    value = floats(g)
    shape = g.arrays[value].shape
    if len(shape) == 4 and g.rng.random() < 0.5:
        g.add("InstanceNormalization", value, g.normal(shape[1], scale=1.0), g.normal(shape[1], scale=0.5), epsilon=0.1)
    elif g.opset >= 17 and len(shape) > 1:
        g.add("LayerNormalization", value, g.normal(shape[-1], scale=1.0), axis=-1, epsilon=0.1)
    else:
        g.add("Softmax", value, axis=-1)


def softmax(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1)
    g.add(str(g.rng.choice(["Softmax", "LogSoftmax"])), value, axis=int(g.rng.integers(g.arrays[value].ndim)))


def matmul(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 2)
    depth = g.arrays[value].shape[-1]
    made = g.add("MatMul", value, g.normal(depth, int(g.rng.integers(1, 8)), scale=1 / np.sqrt(depth)))
    if g.rng.random() < 0.5:
        g.add("Add", made, g.normal(g.arrays[made].shape[-1], scale=0.2))


def attention(g):
    value = floats(g, 3)
    depth = g.arrays[value].shape[-1]
    query, key = (g.add("MatMul", value, g.normal(depth, depth, scale=1 / np.sqrt(depth))) for _ in range(2))
    scores = g.add("MatMul", query, g.add("Transpose", key, perm=[0, 2, 1]))
    shares = g.add("Softmax", g.add("Mul", scores, g.number(0.35)), axis=-1)
    g.add("MatMul", shares, value)


def gemm(g):
    value = floats(g, 2)
    depth = g.arrays[value].shape[-1]
    wide = int(g.rng.integers(1, 8))
    bias = [[], [g.normal(wide, scale=0.2)], [g.number(0.25)]][int(g.rng.integers(3))]
    if g.rng.random() < 0.5:
        g.add("Gemm", value, g.normal(wide, depth), *bias, transB=1)
    else:
        g.add("Gemm", value, g.normal(depth, wide, scale=1 / np.sqrt(depth)), *bias, alpha=0.5)


def einsum(g):
    value = floats(g, 3)
    g.add("Einsum", value, g.normal(g.arrays[value].shape[-1], 4, scale=0.4), equation="bij,jk->bik")


def reduce(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 2)
    axis = int(g.rng.integers(g.arrays[value].ndim))
    op_type = str(g.rng.choice(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"]))
    since = 13 if op_type == "ReduceSum" else 18
    axes_form(g, op_type, value, [axis], since, keepdims=int(g.rng.random() < 0.6))


def recurrent(g):
    value = floats(g, 3)
    depth, hidden = g.arrays[value].shape[-1], 4
    kind, gates = ("LSTM", 4) if g.rng.random() < 0.5 else ("GRU", 3)
    weights = [g.normal(1, gates * hidden, n, scale=0.4) for n in (depth, hidden)]
    made = g.add(kind, value, *weights, hidden_size=hidden)
    axes_form(g, "Squeeze", made, [1], 13)


def whole_numbers(g):
    value = integers(g)
    dtype = g.arrays[value].dtype
    kind = g.rng.integers(3)
    if kind == 0:
        g.add(str(g.rng.choice(["Add", "Mul", "Sub"])), value, g.number(int(g.rng.integers(1, 4)), dtype))
    elif kind == 1:
        g.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(g.float)))
    else:
        g.add("OneHot", value, g.weight(np.int64(5), shared=True), g.weight(np.asarray([0, 1], g.float), shared=True))


def round_trip(g):
    """Through another type of floats, or whole numbers."""
    value = floats(g)
    other = {np.float16: TensorProto.FLOAT}.get(g.float, TensorProto.FLOAT16)
    to = int(g.rng.choice([other, TensorProto.INT32]))
    g.add("Cast", g.add("Cast", value, to=to, keep=False), to=helper.np_dtype_to_tensor_dtype(np.dtype(g.float)))


def quantized(g):
    """A pair that a quantizer has left."""
    value = floats(g)
    form = np.int8(0) if g.rng.random() < 0.6 else np.uint8(128)
    scale, zero = g.weight(np.float32(0.03), shared=True), g.weight(np.asarray(form), shared=g.rng.random() < 0.5)
    g.add("DequantizeLinear", g.add("QuantizeLinear", value, scale, zero, keep=False), scale, zero)


def integer_operators(g):
    """Operators of integers, as dynamic quantization writes them."""
    value = pick(g, lambda array: array.dtype == np.float32 and array.ndim == 2)
    whole, scale, zero = g.add("DynamicQuantizeLinear", value, outputs=3, keep=False)
    weight = g.weight(g.rng.integers(-90, 90, (g.arrays[value].shape[-1], 5)).astype(np.int8))
    product = g.add("MatMulInteger", whole, weight, zero, keep=False)
    factor = g.add("Mul", scale, g.number(0.01), keep=False)
    g.add("Mul", g.add("Cast", product, to=TensorProto.FLOAT, keep=False, largest=np.inf), factor)
