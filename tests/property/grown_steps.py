"""What a random graph is grown from: one function per kind of step, for the values that it can take."""

import numpy as np
from onnx import TensorProto, helper

from .grown import Graph, Impossible

UNARY = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "LeakyRelu": {"alpha": 0.1}, "HardSigmoid": {"alpha": 0.2}, "Elu": {},
    "Softplus": {}, "Abs": {}, "Neg": {}, "Erf": {}, "Identity": {}, "HardSwish": {}, "Sin": {}, "Softsign": {},
    "Selu": {}, "Floor": {}, "Sign": {},
}  # fmt: skip
INTEGERS = (np.int64, np.int32)


def pick(g, accept=lambda array: True):
    """One of the values that `accept`; later ones more often."""
    found = g.values(accept)
    if not found:
        raise Impossible("no such value")
    return found[-1 - int(g.rng.integers(min(len(found), 4)))] if g.rng.random() < 0.7 else str(g.rng.choice(found))


def floats(g, rank=None):
    """A value of the graph's floats."""
    return pick(g, lambda array: array.dtype == g.float and (rank is None or array.ndim == rank))


def integers(g):
    return pick(g, lambda array: array.dtype in INTEGERS and array.ndim)


def axes_form(g, op_type, value, axes, since, **attributes):
    """An operator with axes as an attribute or an input, as the opset has it."""
    if g.opset >= since:
        return g.add(op_type, value, g.whole(*axes), **attributes)
    return g.add(op_type, value, axes=list(axes), **attributes)


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


def broadcasts(one, other):
    return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1]))


def where(g):
    value = floats(g)
    truth = g.add(str(g.rng.choice(["Greater", "Less"])), value, g.number(0.1), keep=False)
    g.add("Where", truth, value, g.number(-2.0))


def swish(g):
    value = floats(g)
    g.add("Mul", value, g.add("Sigmoid", value))


def squeeze_excite(g):
    value = floats(g, 4)
    channels = g.arrays[value].shape[1]
    pooled = g.add("GlobalAveragePool", value)
    thin = g.add("Relu", g.add("Conv", pooled, g.normal(2, channels, 1, 1)))
    g.add("Mul", value, g.add("Sigmoid", g.add("Conv", thin, g.normal(channels, 2, 1, 1), g.normal(channels))))


def conv(g):
    value = floats(g, 4)
    channels = g.arrays[value].shape[1]
    size, group = int(g.rng.choice([1, 3])), int(g.rng.choice([1, 1, channels]))
    wide = channels if group > 1 else int(g.rng.integers(1, 7))
    weight = g.normal(wide, channels // group, size, size)
    if g.float == np.float32 and g.rng.random() < 0.15:
        weight = dequantised_weight(g, (wide, channels // group, size, size))
    bias = [g.normal(wide, scale=0.1)] if g.rng.random() < 0.6 else []
    stride = int(g.rng.choice([1, 1, 2]))
    made = g.add("Conv", value, weight, *bias, pads=[size // 2] * 4, group=group, strides=[stride] * 2)
    if g.rng.random() < 0.3:
        numbers = [g.weight((1 + 0.1 * g.rng.standard_normal(wide)).astype(g.float)) for _ in range(4)]
        made = g.add("BatchNormalization", made, *numbers[:3], g.weight(np.full(wide, 0.8, g.float)))
    if g.rng.random() < 0.5:
        g.add(str(g.rng.choice(["Relu", "Relu", "LeakyRelu", "Sigmoid"])), made)


def conv_transpose(g):
    value = floats(g, 4)
    channels = g.arrays[value].shape[1]
    g.add("ConvTranspose", value, g.normal(channels, 3, 2, 2), strides=[2, 2])


def pool(g):
    op_type = str(g.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"]))
    plain = {} if op_type.startswith("Global") else {
        "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [int(g.rng.choice([1, 2]))] * 2
    }  # fmt: skip
    g.add(op_type, floats(g, 4), **plain)


def resize(g):
    value = floats(g, 4)
    mode = str(g.rng.choice(["nearest", "linear"]))
    manner = {"mode": mode, "coordinate_transformation_mode": str(g.rng.choice(["asymmetric", "half_pixel"]))}
    if g.rng.random() < 0.5:
        g.add("Resize", value, "", g.weight(np.float32([1, 1, 2, 2]), shared=True), **manner)
    else:
        shape = g.add("Shape", value, keep=False)
        head = g.add("Slice", shape, g.whole(0), g.whole(2), keep=False)
        g.add("Resize", value, "", "", g.add("Concat", head, g.whole(6, 5), axis=0, keep=False), **manner)


def blocks(g):
    value = floats(g, 4)
    g.add(*(("DepthToSpace", value) if g.rng.random() < 0.5 else ("SpaceToDepth", value)), blocksize=2)


def normalise(g):
    value = floats(g)
    shape = g.arrays[value].shape
    if len(shape) == 4 and g.rng.random() < 0.5:
        g.add("InstanceNormalization", value, g.normal(shape[1], scale=1.0), g.normal(shape[1], scale=0.5), epsilon=0.1)
    elif g.opset >= 17 and len(shape) > 1:
        g.add("LayerNormalization", value, g.normal(shape[-1], scale=1.0), axis=-1, epsilon=0.1)
    else:
        g.add("Softmax", value, axis=-1)


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


def softmax(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1)
    g.add(str(g.rng.choice(["Softmax", "LogSoftmax"])), value, axis=int(g.rng.integers(g.arrays[value].ndim)))


def concat(g):
    one = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1)
    axis = int(g.rng.integers(g.arrays[one].ndim))
    fits = [
        name for name in g.values(lambda array: array.dtype == g.float and array.ndim == g.arrays[one].ndim)
        if all(a == b for i, (a, b) in enumerate(zip(g.arrays[name].shape, g.arrays[one].shape)) if i != axis)
    ]  # fmt: skip
    g.add("Concat", *([one, str(g.rng.choice(fits))][:: int(g.rng.choice([1, -1]))]), axis=axis)


def split(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim and array.shape[-1] > 2)
    last = g.arrays[value].shape[-1]
    g.add("Split", value, g.whole(1, last - 1), outputs=2, axis=-1)


def slices(g):
    value = pick(g, lambda array: array.dtype.kind in "fi" and array.ndim and max(array.shape) > 2)
    axis = int(np.argmax(g.arrays[value].shape))
    end = int(g.rng.choice([-1, 2**63 - 1, 3]))
    g.add("Slice", value, g.whole(1), g.whole(end), g.whole(axis), g.whole(int(g.rng.choice([1, 2]))))


def pad(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 2)
    rank = g.arrays[value].ndim
    before, after = [0] * (rank - 1) + [1], [0] * (rank - 1) + [2]
    mode = str(g.rng.choice(["constant", "edge", "reflect"]))
    g.add("Pad", value, g.whole(*before, *after), *([g.number(0.5)] if mode == "constant" else []), mode=mode)


def transpose(g):
    value = pick(g, lambda array: array.ndim >= 2 and array.dtype.kind == "f")
    g.add("Transpose", value, perm=g.rng.permutation(g.arrays[value].ndim).tolist())


def reshape(g):
    """To fixed extents, or to those that are computed from the value's own."""
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 2)
    shape = g.arrays[value].shape
    kind = g.rng.integers(4)
    if kind == 0:
        g.add("Reshape", value, g.whole(shape[0], -1))
    elif kind == 1:
        extents = g.add("Shape", value, keep=False)
        batch = g.add("Gather", extents, g.weight(np.int64(0), shared=True), axis=0, keep=False)
        batch = axes_form(g, "Unsqueeze", batch, [0], 13, keep=False)
        g.add("Reshape", value, g.add("Concat", batch, g.whole(-1), axis=0, keep=False))
    elif kind == 2:
        g.add("Flatten", value, axis=1)
    else:
        g.add("Reshape", value, g.whole(0, -1, shape[-1]))


def squeeze(g):
    value = floats(g)
    ones = [axis for axis, extent in enumerate(g.arrays[value].shape) if extent == 1]
    if ones and g.rng.random() < 0.5:
        axes_form(g, "Squeeze", value, ones[:1], 13)
    elif g.arrays[value].ndim < 4:
        axes_form(g, "Unsqueeze", value, [int(g.rng.integers(2)) if g.arrays[value].ndim else 0], 13)


def shape_as_number(g):
    """An extent that is used as a float."""
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1)
    extent = g.add("Gather", g.add("Shape", value, keep=False), g.weight(np.int64(-1), shared=True), keep=False)
    number = g.add("Cast", extent, to=helper.np_dtype_to_tensor_dtype(np.dtype(g.float)), keep=False)
    g.add("Div", value, g.add("Sqrt", number))


def expand(g):
    value = floats(g)
    shape = g.add("Shape", value, keep=False)
    g.add("Mul", value, g.add("Expand", g.number(0.5), shape))


def choose(g):
    """Positions, and what stands there."""
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1 and array.shape[-1] > 2)
    kind = g.rng.integers(4)
    if kind == 0:
        g.add("TopK", value, g.whole(2), outputs=2)
    elif kind == 1:
        g.add("ArgMax", value, axis=-1, keepdims=int(g.rng.integers(2)))
    elif kind == 2:
        g.add("Gather", value, g.whole(2, 0), axis=-1)
    else:
        best = g.add("ArgMax", value, axis=-1, keepdims=1)
        g.add("GatherElements", value, best, axis=-1)


def embedding(g):
    ids = integers(g)
    rows = g.add(
        "Clip", ids, g.weight(np.asarray(0, g.arrays[ids].dtype)), g.weight(np.asarray(9, g.arrays[ids].dtype))
    )
    g.add("Gather", g.normal(10, 6, scale=1.0), rows, axis=0)


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


def quantised(g):
    """A pair that a quantiser has left."""
    value = floats(g)
    form = np.int8(0) if g.rng.random() < 0.6 else np.uint8(128)
    scale, zero = g.weight(np.float32(0.03), shared=True), g.weight(np.asarray(form), shared=g.rng.random() < 0.5)
    g.add("DequantizeLinear", g.add("QuantizeLinear", value, scale, zero, keep=False), scale, zero)


def dequantised_weight(g, shape):
    whole = g.weight(g.rng.integers(-127, 128, shape).astype(np.int8))
    if g.rng.random() < 0.5:
        return g.add("DequantizeLinear", whole, g.number(0.004), g.weight(np.int8(0), shared=True), keep=False)
    scales = g.weight(g.rng.uniform(0.002, 0.006, shape[0]).astype(np.float32))
    return g.add("DequantizeLinear", whole, scales, g.weight(np.zeros(shape[0], np.int8)), axis=0, keep=False)


def integer_operators(g):
    """Operators of integers, as dynamic quantisation writes them."""
    value = pick(g, lambda array: array.dtype == np.float32 and array.ndim == 2)
    whole, scale, zero = g.add("DynamicQuantizeLinear", value, outputs=3, keep=False)
    weight = g.weight(g.rng.integers(-90, 90, (g.arrays[value].shape[-1], 5)).astype(np.int8))
    product = g.add("MatMulInteger", whole, weight, zero, keep=False)
    factor = g.add("Mul", scale, g.number(0.01), keep=False)
    g.add("Mul", g.add("Cast", product, to=TensorProto.FLOAT, keep=False, largest=np.inf), factor)


def recurrent(g):
    value = floats(g, 3)
    depth, hidden = g.arrays[value].shape[-1], 4
    kind, gates = ("LSTM", 4) if g.rng.random() < 0.5 else ("GRU", 3)
    weights = [g.normal(1, gates * hidden, n, scale=0.4) for n in (depth, hidden)]
    made = g.add(kind, value, *weights, hidden_size=hidden)
    axes_form(g, "Squeeze", made, [1], 13)


def inner(g, count):
    """A body with a few nodes that ends in a float of the shape of one that it captures."""
    body = Graph(g.rng, g.opset, g.float, outer=g)
    for _ in range(count):
        try:
            STEPS[str(g.rng.choice(["unary", "binary", "clip", "matmul", "where", "swish"]))](body)
        except Impossible:
            continue
    return body


def branch(g):
    value = floats(g)
    ends = []
    for _ in range(2):
        body = inner(g, int(g.rng.integers(0, 3)))
        own = body.add(str(g.rng.choice(["Relu", "Tanh", "Neg"])), value)
        alike = [name for name in body.made if body.arrays[name].shape == body.arrays[own].shape]
        end = body.add("Mul", own, str(g.rng.choice([n for n in alike if body.arrays[n].dtype == g.float])))
        ends.append((body, end))
    total = axes_form(g, "ReduceSum", value, range(g.arrays[value].ndim), 13, keepdims=0, keep=False)
    condition = g.add("Greater", total, g.number(float(g.rng.choice([-100, 100, 0]))), keep=False)
    (one, end), (other, back) = ends
    g.add("If", condition, then_branch=one.body([end]), else_branch=other.body([back]))


def loop(g):
    value = floats(g)
    if g.rng.random() < 0.5:
        trips = g.weight(np.int64(2), shared=True)
    else:
        trips = g.add("Size", g.whole(1, 1, 1), keep=False)
    body = Graph(g.rng, g.opset, g.float, outer=g)
    names = [body.fresh(stem) for stem in ("i", "go", "state")]
    body.arrays.update(zip(names, [np.int64(0), np.bool_(True), g.arrays[value]]))
    body.arrays.update({name: np.asarray(body.arrays[name]) for name in names})
    on = body.add("Identity", names[1], keep=False)
    if g.rng.random() < 0.5:
        step = body.add("Tanh", body.add("Add", names[2], body.number(0.25)))
    else:
        step = body.add("Mul", body.add("Sigmoid", names[2]), value)
    scans = [body.add("Neg", step)] if g.rng.random() < 0.4 else []
    made = body.body([on, step, *scans], names)
    g.add("Loop", trips, g.weight(np.asarray(True), shared=True), value, outputs=1 + len(scans), body=made)


STEPS = {
    step.__name__: step
    for step in (
        unary, clip, positive, binary, where, swish, squeeze_excite, conv, conv_transpose, pool, resize, blocks,
        normalise, matmul, attention, gemm, einsum, reduce, softmax, concat, split, slices, pad, transpose, reshape,
        squeeze, shape_as_number, expand, choose, embedding, whole_numbers, round_trip, quantised, integer_operators,
        recurrent, branch, loop,
    )
}  # fmt: skip
WEIGHTS = {
    "conv": 8,
    "binary": 4,
    "unary": 4,
    "matmul": 3,
    "concat": 2,
    "pool": 2,
    "gemm": 2,
    "branch": 0.7,
    "loop": 0.7,
}


def drawn(rng):
    """The name of one step."""
    shares = np.array([WEIGHTS.get(name, 1.0) for name in STEPS])
    return str(rng.choice(list(STEPS), p=shares / shares.sum()))
