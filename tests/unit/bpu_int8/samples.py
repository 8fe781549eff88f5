"""One small node of every operator that `bpu-int8` lists, with knobs: numbers and words that rows of its file limit.

A builder knows ONNX, and nothing of the BPU: which values of the knobs are allowed, the tests read from the file.
"""

import math

import numpy as np
import onnx_ir as ir

FLOAT, INT64, INT32, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL
OPSET = 21


class Sample:
    """A node under construction.

    Args:
        knobs: The knobs of the node, by name.
    """

    def __init__(self, knobs):
        self.knobs, self.weights, self.before, self.after = knobs, [], [], []

    def __getattr__(self, name):
        return self.knobs[name]

    def computed(self, shape, dtype=FLOAT):
        """A value that another node gives."""
        node = ir.node("Relu", [self.given(shape, dtype)])
        self.before.append(node)
        return typed(node.outputs[0], f"v{len(self.before)}", shape, dtype)

    def given(self, shape, dtype=FLOAT):
        """An input of the model."""
        return ir.Value(name=f"x{len(self.before)}", shape=ir.Shape(shape), type=ir.TensorType(dtype))

    def constant(self, content, shape=None, dtype=FLOAT):
        """A constant: an array, or one whose numbers nobody reads where only a shape is given."""
        name = f"c{len(self.weights)}"
        if shape is None:
            array = np.asarray(content)
            tensor = ir.tensor(array, name=name)
        else:
            tensor = ir.LazyTensor(_unread, dtype=dtype, shape=ir.Shape(shape), name=name)
        value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.weights.append(value)
        return value

    def made(self, kind, inputs, attributes, *results, dtype=FLOAT):
        """The node in a graph with what surrounds it; `results` are the shapes of its outputs."""
        node = ir.node(kind, inputs, attributes, num_outputs=len(results), name="it", version=OPSET)
        for i, (value, shape) in enumerate(zip(node.outputs, results)):
            typed(value, f"y{i}", shape, dtype if not isinstance(dtype, tuple) else dtype[i])
        if self.knobs.get("residual_add"):
            other = self.computed(results[0])
            self.after.append(ir.node("Add", [node.outputs[0], other]))
            typed(self.after[0].outputs[0], "sum", results[0], FLOAT)
        if self.knobs.get("only_gemms_read"):
            self.after.append(ir.node("Gemm", [node.outputs[0], self.constant(None, [1, 1])]))
            typed(self.after[0].outputs[0], "product", [1, 1], FLOAT)
        last = self.after[-1] if self.after else node
        outputs = last.outputs if self.knobs.get("is_output", False) else ()
        ir.Graph([], outputs, nodes=[*self.before, node, *self.after], initializers=self.weights,
                 opset_imports={"": OPSET})  # fmt: skip
        return node


def typed(value, name, shape, dtype):
    value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(dtype)
    return value


def _unread():
    raise AssertionError("nobody reads a weight to judge its node")


def convolution(s):
    if s.spatial == 3:
        kernel, image, pads = (s.KD, s.KH, s.KW), (s.D, s.H, s.W), (s.PD, s.PT, s.PL, s.QD, s.PB, s.PR)
        strides, dilations = (s.SD, s.SH, s.SW), (s.DD, s.DH, s.DW)
    else:
        kernel, image, pads = (s.KH, s.KW), (s.H, s.W), (s.PT, s.PL, s.PB, s.PR)
        strides, dilations = (s.SH, s.SW), (s.DH, s.DW)
    half = len(kernel)
    after = [
        max((x + pads[i] + pads[i + half] - dilations[i] * (kernel[i] - 1) - 1) // max(strides[i], 1) + 1, 1)
        for i, x in enumerate(image)
    ]
    channels, features = s.Cg * s.group, -(-s.M // max(s.group, 1)) * s.group
    weight_shape = (features, s.Cg, *kernel)
    weight = s.constant(None, weight_shape) if s.knobs["W.constant"] else s.computed(weight_shape)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": s.group}
    return s.made("Conv", [s.computed((s.N, channels, *image)), weight], attributes, (s.N, features, *after))


def transposed_convolution(s):
    channels, features = -(-s.C // s.group) * s.group, s.Mg * s.group
    shape = (channels, s.Mg, s.KH, s.KW)
    weight = s.constant(None, shape) if s.knobs["W.constant"] else s.computed(shape)
    after = [
        s.HO or s.SH * (s.H - 1) + s.KH - s.PT - s.PB + s.output_padding,
        s.WO or s.SW * (s.W - 1) + s.KW - s.PL - s.PR + s.output_padding,
    ]
    attributes = {
        "strides": (s.SH, s.SW), "pads": (s.PT, s.PL, s.PB, s.PR), "group": s.group,
        "dilations": (s.dilations,) * 2, "output_padding": (s.output_padding,) * 2,
    }  # fmt: skip
    return s.made("ConvTranspose", [s.computed((s.N, channels, s.H, s.W)), weight], attributes, (s.N, features, *after))


def gemm(s):
    image = (s.image_channels, s.image_height, s.image_width)
    inner = s.K or math.prod(image)
    if s.K:
        read = s.computed((s.M, s.K) if not s.transA else (s.K, s.M))
    else:
        flat = ir.node("Flatten", [s.computed((s.M, *image))])
        s.before.append(flat)
        read = typed(flat.outputs[0], "flat", (s.M, inner), FLOAT)
    shape = (s.N, inner) if s.transB else (inner, s.N)
    weight = s.constant(None, shape) if s.knobs["B.constant"] else s.computed(shape)
    attributes = {"transA": s.transA, "transB": s.transB, "alpha": float(s.alpha), "beta": float(s.beta)}
    return s.made("Gemm", [read, weight], attributes, (s.M, s.N))


def matrices(s):
    batches = [[s.batch if extent == "x" else extent for extent in given] for given in (s.a, s.b)]
    first = (s.K,) if s.a == "v" else (*batches[0], s.M, s.K)
    second = (s.K,) if s.b == "v" else (*batches[1], s.K, s.N)
    rank = max(len(first), len(second))
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in (first, second)]
    after = [max(pair) for pair in zip(*(shape[:-2] for shape in padded))]
    after += [] if s.a == "v" else [s.M]
    after += [] if s.b == "v" else [s.N]
    made = [
        s.constant(None, shape) if s.knobs[f"{port}.constant"] else s.computed(shape)
        for port, shape in (("A", first), ("B", second))
    ]
    return s.made("MatMul", made, {}, after)


def dims(s):
    """N C H W and more axes of 2, as many as the rank asks for."""
    named = [s.N, s.C, s.H, s.W]
    return [*named[: s.rank], *[2] * (s.rank - 4)]


def operands(kind, dtype=FLOAT):
    """Operators of two inputs that are broadcast; `a` and `b` are the axes along which an operand is."""

    def build(s):
        after = dims(s)
        shapes = [[1 if str(i) in axes else extent for i, extent in enumerate(after)] for axes in (s.a, s.b)]
        made = []
        for i, shape in enumerate(shapes):
            if i == 1 and s.knobs.get("divides_by_number"):
                made.append(s.constant(np.full([1] * len(shape), 6, np.float32)))
            elif i == 1 and s.zeros:
                array = np.ones(shape, np.float32)
                array.flat[: s.zeros] = 0
                made.append(s.constant(array))
            elif i >= 2 - s.constants:
                made.append(s.constant(None, shape))
            else:
                made.append(s.given(shape) if i == 1 and s.not_computed else s.computed(shape))
        made += [s.computed(shapes[0]) for _ in range(s.operands - 2)]
        return s.made(kind, made, {}, after, dtype=dtype)

    return build


def unary(kind, **attributes):
    return lambda s: s.made(kind, [s.computed(dims(s))], attributes, dims(s))


def sigmoid(s):
    """Alone, or with the Mul of a SiLU behind it."""
    read = s.computed(dims(s))
    if s.in_swish:
        node = ir.node("Sigmoid", [read], name="it", version=OPSET)
        typed(node.outputs[0], "y0", dims(s), FLOAT)
        product = ir.node("Mul", [read, node.outputs[0]])
        ir.Graph([], [], nodes=[*s.before, node, product], initializers=s.weights, opset_imports={"": OPSET})
        return node
    return s.made("Sigmoid", [read], {}, dims(s))


def erf(s):
    """Alone, or in a GELU."""
    half = ir.node("Div", [s.computed(dims(s)), s.constant(np.float32(2**0.5 if s.in_gelu else 3))])
    typed(half.outputs[0], "scaled", dims(s), FLOAT)
    node = ir.node("Erf", [half.outputs[0]], name="it", version=OPSET)
    typed(node.outputs[0], "y0", dims(s), FLOAT)
    add = ir.node("Add", [node.outputs[0], s.constant(np.float32(1))])
    product = ir.node("Mul", [half.inputs[0], add.outputs[0]])
    ir.Graph([], [], nodes=[*s.before, half, node, add, product], initializers=s.weights, opset_imports={"": OPSET})
    return node


def power(s):
    made = s.constant(None, (s.second_size,)) if s.knobs["Y.constant"] else s.computed((s.second_size,))
    return s.made("Pow", [s.computed(dims(s)), made], {}, dims(s))


def clipped(s):
    return s.made("Clip", [s.computed(dims(s)), s.constant(np.float32(0)), s.constant(np.float32(6))], {}, dims(s))


def with_slopes(s):
    return s.made("PRelu", [s.computed(dims(s)), s.constant(None, (s.C, 1, 1))], {}, dims(s))


def normalized(s):
    vectors = [s.constant(None, (s.C,)) for _ in range(4)]
    return s.made("BatchNormalization", [s.computed(dims(s)), *vectors], {}, dims(s))


def pooling(kind):
    def build(s):
        attributes = {"kernel_shape": (s.kernel_shape,) * 2, "strides": (s.strides,) * 2, "pads": (s.pads,) * 4}
        if kind == "MaxPool":
            attributes["dilations"] = (s.dilations,) * 2
        after = [max((x + 2 * s.pads - s.kernel_shape) // max(s.strides, 1) + 1, 1) for x in (s.H, s.W)]
        return s.made(kind, [s.computed(dims(s))], attributes, (*dims(s)[:2], *after))

    return build


def global_pooling(kind):
    return lambda s: s.made(kind, [s.computed(dims(s))], {}, [*dims(s)[:2], *[1] * (s.rank - 2)])


def softmax(s):
    return s.made("Softmax", [s.computed(dims(s))], {"axis": s.axis}, dims(s))


def index_of(kind):
    def build(s):
        after = [1 if i == s.axis else extent for i, extent in enumerate(dims(s))]
        return s.made(kind, [s.computed(dims(s))], {"axis": s.axis, "keepdims": 1}, after, dtype=INT64)

    return build


def reduction(kind):
    def build(s):
        after = [1 if i in s.axes else extent for i, extent in enumerate(dims(s))]
        after = after if s.keepdims else [x for i, x in enumerate(dims(s)) if i not in s.axes]
        made = [s.computed(dims(s)), s.constant(np.array(s.axes, np.int64))]
        return s.made(kind, made, {"keepdims": s.keepdims}, after)

    return build


def joined(s):
    axis = min(s.axis, s.rank - 1)
    part = [max(extent // 2, 1) if i == axis else extent for i, extent in enumerate(dims(s))]
    rest = [extent - part[i] if i == axis else extent for i, extent in enumerate(dims(s))]
    return s.made("Concat", [s.computed(part), s.computed(rest)], {"axis": axis}, dims(s))


def parts(s):
    axis = min(s.axis, s.rank - 1)
    first = [extent // 2 + s.indivisible_parts if i == axis else extent for i, extent in enumerate(dims(s))]
    second = [extent - first[i] if i == axis else extent for i, extent in enumerate(dims(s))]
    sizes = s.constant(np.array([first[axis], second[axis]]))
    return s.made("Split", [s.computed(dims(s)), sizes], {"axis": axis}, first, second)


def sliced(s):
    bounds = [s.constant(np.array([n])) for n in (0, max(dims(s)[-1] // 2, 1), s.rank - 1)]
    return s.made("Slice", [s.computed(dims(s)), *bounds], {}, [*dims(s)[:-1], max(dims(s)[-1] // 2, 1)])


def resized(s):
    sizes = s.constant(np.array([s.N, s.C, s.HO, s.WO]))
    attributes = {"mode": s.mode, "coordinate_transformation_mode": s.coordinate_transformation_mode}
    made = [s.computed(dims(s)), None, None, sizes]
    return s.made("Resize", made, attributes, (*dims(s)[:2], s.HO, s.WO, *dims(s)[4:])[: s.rank])


def padded(s):
    pads = [s.BN, s.BC, s.BH, s.BW, s.EN, s.EC, s.EH, s.EW]
    pads = [*pads[: s.rank], *[0] * (s.rank - 4), *pads[4 : 4 + s.rank], *[0] * (s.rank - 4)]
    after = [extent + pads[i] + pads[i + s.rank] for i, extent in enumerate(dims(s))]
    return s.made("Pad", [s.computed(dims(s)), s.constant(np.array(pads))], {"mode": s.mode}, after)


def blocks(kind):
    def build(s):
        square, n = s.blocksize**2, s.blocksize
        if kind == "SpaceToDepth":
            after = [s.N, s.C * square, max(s.H // n, 1), max(s.W // n, 1)]
        else:
            after = [s.N, max(s.C // square, 1), s.H * n, s.W * n]
        attributes = {"blocksize": n} | ({"mode": s.mode} if kind == "DepthToSpace" else {})
        return s.made(kind, [s.computed(dims(s))], attributes, [*after, *dims(s)[4:]][: s.rank])

    return build


def recurrent(s):
    hidden = 3
    made = [
        s.computed((s.T, s.N, s.I) if not s.layout else (s.N, s.T, s.I)),
        *(
            s.constant(None, shape) if s.knobs[f"{port}.constant"] else s.computed(shape)
            for port, shape in (("W", (1, 4 * hidden, s.I)), ("R", (1, 4 * hidden, hidden)))
        ),
    ]
    return s.made("LSTM", made, {"hidden_size": hidden, "layout": s.layout}, (s.T, 1, s.N, hidden))


def reshaped(kind):
    """Operators that only change the shape, or the order of the axes."""

    def build(s):
        before, made = dims(s), [s.computed(dims(s))]
        missing = (s.rank if s.rank_after is None else s.rank_after) - s.rank
        after = (
            [*[1] * missing, *before] if missing >= 0 else [*before[: missing - 1], math.prod(before[missing - 1 :])]
        )
        after = [] if s.rank_after == 0 else after
        if kind in ("Reshape", "Squeeze", "Unsqueeze"):
            made.append(s.constant(np.array(after)))
        if kind == "Transpose" and s.output_layout:
            made[0].producer().op_type = "Conv"
            s.knobs["is_output"] = True
            return s.made(kind, made, {"perm": [0, 2, 3, 1]}, [after[0], *after[2:], after[1]])
        return s.made(kind, made, {"perm": list(range(s.rank))} if kind == "Transpose" else {}, after)

    return build


def gathered(s):
    shape = [2] * s.index_rank
    after = [*shape, *dims(s)[1:]]
    dtype = {"int32": INT32, "int64": INT64}[s.indices]
    indices = s.constant(None, shape, dtype) if s.knobs["indices.constant"] else s.computed(shape, dtype)
    if s.rank_after:
        after = [2] * s.rank_after
    return s.made("Gather", [s.computed(dims(s)), indices], {"axis": 0}, after)


def gathered_elements(s):
    return s.made("GatherElements", [s.computed(dims(s)), s.computed(dims(s), INT64)], {"axis": s.rank - 1}, dims(s))


def largest(s):
    after = [*dims(s)[:-1], 1]
    made = [s.computed(dims(s)), s.constant(np.array([1]))]
    return s.made("TopK", made, {"sorted": s.sorted, "axis": s.rank - 1}, after, after, dtype=(FLOAT, INT64))


def repeated(kind):
    def build(s):
        after = [extent * (2 if i < s.changed_extents else 1) for i, extent in enumerate(dims(s))]
        before = dims(s) if kind == "Tile" else [1 if i < s.changed_extents else x for i, x in enumerate(dims(s))]
        after = after if kind == "Tile" else [*[1] * (s.rank_after - s.rank), *dims(s)]
        return s.made(kind, [s.computed(before), s.constant(np.array(after))], {}, after)

    return build


def sampled(s):
    attributes = {"mode": s.mode, "padding_mode": s.padding_mode}
    made = [s.computed((s.N, s.C, s.H, s.W)), s.computed((s.N, 4, 4, s.coordinates))]
    return s.made("GridSample", made, attributes, (s.N, s.C, 4, 4))


IMAGE = {"N": 1, "C": 4, "H": 4, "W": 4, "rank": 4, "is_output": False}
WINDOW = {"SH": 1, "SW": 1, "PT": 0, "PL": 0, "PB": 0, "PR": 0, "KH": 2, "KW": 2, "group": 1, "W.constant": True}
CONV = IMAGE | WINDOW | {
    "Cg": 4, "M": 4, "DH": 1, "DW": 1, "H": 32, "W": 32, "residual_add": False, "spatial": 2,
    "D": 8, "KD": 2, "SD": 1, "DD": 1, "PD": 0, "QD": 0,
}  # fmt: skip
PAIR = IMAGE | {"a": "", "b": "", "constants": 0, "zeros": 0, "not_computed": 0, "operands": 2}
POOL = IMAGE | {"kernel_shape": 2, "strides": 1, "pads": 0, "dilations": 1}

SAMPLES = {
    "Conv": (convolution, CONV),
    "ConvTranspose": (
        transposed_convolution,
        IMAGE | WINDOW | {"Mg": 4, "SH": 2, "SW": 2, "dilations": 1, "output_padding": 0, "HO": 0, "WO": 0},
    ),
    "Gemm": (
        gemm,
        {"M": 1, "K": 4, "N": 4, "transA": 0, "transB": 0, "alpha": 1, "beta": 1, "B.constant": True,
         "image_channels": 4, "image_height": 1, "image_width": 1},
    ),
    "MatMul": (
        matrices,
        {"a": (1, 1), "b": (), "batch": 2, "M": 3, "K": 4, "N": 5, "A.constant": False, "B.constant": True},
    ),
    **{kind: (operands(kind), PAIR) for kind in ("Add", "Sum", "Sub", "Mul", "Max", "Min")},
    "Div": (operands("Div"), PAIR | {"divides_by_number": False}),
    **{kind: (operands(kind, BOOL), PAIR) for kind in ("Equal", "Greater", "Less")},
    **{
        kind: (unary(kind), IMAGE)
        for kind in (
            "Abs", "Atan", "Ceil", "Cos", "Elu", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish",
            "Reciprocal", "Relu", "Sin", "Softplus", "Sqrt", "Tanh",
        )
    },
    "Clip": (clipped, IMAGE),
    "Sigmoid": (sigmoid, IMAGE | {"in_swish": False}),
    "Erf": (erf, IMAGE | {"in_gelu": True}),
    "PRelu": (with_slopes, IMAGE),
    "BatchNormalization": (normalized, IMAGE),
    "Pow": (power, IMAGE | {"second_size": 1, "Y.constant": True}),
    "MaxPool": (pooling("MaxPool"), POOL),
    "AveragePool": (pooling("AveragePool"), POOL),
    "GlobalAveragePool": (global_pooling("GlobalAveragePool"), IMAGE),
    "GlobalMaxPool": (global_pooling("GlobalMaxPool"), IMAGE),
    "Softmax": (softmax, IMAGE | {"axis": 1, "is_output": True}),
    "ArgMax": (index_of("ArgMax"), IMAGE | {"axis": 1}),
    "ArgMin": (index_of("ArgMin"), IMAGE | {"axis": 1}),
    **{
        kind: (reduction(kind), IMAGE | {"axes": (1,), "keepdims": 1})
        for kind in ("ReduceMean", "ReduceSum", "ReduceMax")
    },
    "Concat": (joined, IMAGE | {"axis": 1}),
    "Split": (parts, IMAGE | {"axis": 1, "indivisible_parts": 0}),
    "Slice": (sliced, IMAGE),
    "Resize": (
        resized,
        IMAGE | {"mode": "linear", "coordinate_transformation_mode": "asymmetric", "HO": 8, "WO": 8},
    ),
    "Pad": (padded, IMAGE | dict.fromkeys(("BN", "BC", "BH", "BW", "EN", "EC", "EH", "EW"), 0) | {"mode": "constant"}),
    "SpaceToDepth": (blocks("SpaceToDepth"), IMAGE | {"blocksize": 2}),
    "DepthToSpace": (blocks("DepthToSpace"), IMAGE | {"blocksize": 2, "mode": "DCR"}),
    "LSTM": (recurrent, {"T": 3, "N": 1, "I": 4, "layout": 0, "W.constant": True, "R.constant": True}),
    **{
        kind: (reshaped(kind), IMAGE | {"rank_after": None, "only_gemms_read": False, "output_layout": False})
        for kind in ("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
    },
    "Gather": (gathered, IMAGE | {"indices.constant": True, "indices": "int64", "index_rank": 1, "rank_after": 0}),
    "GatherElements": (gathered_elements, IMAGE),
    "TopK": (largest, IMAGE | {"sorted": 1}),
    "Tile": (repeated("Tile"), IMAGE | {"changed_extents": 1}),
    "Expand": (repeated("Expand"), IMAGE | {"changed_extents": 1, "rank_after": 4}),
    "GridSample": (sampled, IMAGE | {"mode": "linear", "padding_mode": "zeros", "coordinates": 2}),
}  # fmt: skip


def sample(kind, knobs):
    """The node of an operator with these knobs; those that are not given are as in `SAMPLES`."""
    build, usual = SAMPLES[kind]
    return build(Sample(usual | knobs))
