"""`arithmetic: integers`: what runs here is what an accelerator with integers computes, bit for bit."""

import onnx
import onnx.compose
import pytest

from .integer_models import CONVERSIONS, FORMATS, IMAGE, Both, file_for, model_of

# What a graph computes of x, and of weights that are given behind a bar.
CASES = {
    "conv": "Conv <pads = [1,1,1,1]> (x, w, b) | float[6,4,3,3] w, float[6] b",
    "conv without bias": "Conv (x, w) | float[5,4,2,3] w",
    "conv strides": "Conv <pads = [2,0,1,1], strides = [2,3]> (x, w, b) | float[3,4,3,2] w, float[3] b",
    "conv dilations": "Conv <pads = [2,2,2,2], dilations = [2,2]> (x, w, b) | float[3,4,3,3] w, float[3] b",
    "conv groups": "Conv <group = 2, pads = [1,1,1,1]> (x, w, b) | float[6,2,3,3] w, float[6] b",
    "conv depthwise": "Conv <group = 4, pads = [1,1,1,1]> (x, w, b) | float[4,1,3,3] w, float[4] b",
    "conv same upper": 'Conv <auto_pad = "SAME_UPPER", strides = [2,2]> (x, w, b) | float[3,4,3,2] w, float[3] b',
    "conv same lower": 'Conv <auto_pad = "SAME_LOWER", strides = [2,2]> (x, w, b) | float[3,4,2,3] w, float[3] b',
    "conv valid": 'Conv <auto_pad = "VALID"> (x, w, b) | float[3,4,2,3] w, float[3] b',
    "deconv": "ConvTranspose <strides = [2,2]> (x, w, b) | float[4,3,2,2] w, float[3] b",
    "deconv overlap": "ConvTranspose <strides = [2,3], pads = [1,0,0,2]> (x, w, b) | float[4,3,3,4] w, float[3] b",
    "deconv gaps": "ConvTranspose <strides = [3,3]> (x, w) | float[4,2,2,1] w",
    "deconv groups": "ConvTranspose <strides = [2,2], group = 2> (x, w) | float[4,3,3,3] w",
    "deconv dilations": "ConvTranspose <dilations = [2,1], strides = [2,1]> (x, w, b) | float[4,3,3,3] w, float[3] b",
    "deconv output": "ConvTranspose <strides = [2,2], output_padding = [1,0]> (x, w, b) | float[4,3,2,2] w, float[3] b",
    "deconv same": 'ConvTranspose <strides = [2,2], auto_pad = "SAME_UPPER"> (x, w, b) | float[4,3,3,3] w, float[3] b',
    "deconv same lower": 'ConvTranspose <strides = [2,3], auto_pad = "SAME_LOWER"> (x, w) | float[4,3,3,4] w',
    "deconv shape": "ConvTranspose <strides = [2,2], output_shape = [12,13]> (x, w) | float[4,3,3,4] w",
    "matmul": "MatMul (x, w) | float[7,5] w",
    "matmul batched": "MatMul (x, w) | float[1,4,7,5] w",
    "add scalar": "Add (x, c) | float c",
    "add channel": "Add (x, c) | float[4,1,1] c",
    "sub": "Sub (c, x) | float[6,7] c",
    "mul channel": "Mul (x, c) | float[1,4,1,1] c",
    "square": "Mul (x, x)",
    "batch norm": "BatchNormalization <epsilon = 0.01> (x, f, s, m, v) "
    "| float[4] f, float[4] s, float[4] m, float[4] v = {0.5, 1, 2.5, 0.1}",
    "average": "AveragePool <kernel_shape = [3,2], strides = [2,1]> (x)",
    "average pads": "AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], strides = [2,2]> (x)",
    "average pads counted": "AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1> (x)",
    "average ceil": "AveragePool <kernel_shape = [3,3], strides = [2,3], ceil_mode = 1> (x)",
    "average same": 'AveragePool <kernel_shape = [2,2], strides = [2,2], auto_pad = "SAME_UPPER"> (x)',
    "global average": "GlobalAveragePool (x)",
    "mean": "ReduceMean <axes = [2,3], keepdims = 1> (x)",
    "mean of all": "ReduceMean <keepdims = 0> (x)",
    "sum": "ReduceSum <keepdims = 0> (x, axes) | int64[2] axes = {-1, 1}",
    "max pool": "MaxPool <kernel_shape = [3,2], strides = [2,2], pads = [1,0,1,1]> (x)",
    "max pool ceil": "MaxPool <kernel_shape = [2,2], strides = [2,2], ceil_mode = 1> (x)",
    "global max": "GlobalMaxPool (x)",
    "reduce max": "ReduceMax <axes = [1], keepdims = 1> (x)",
    "maximum": "Max (x, c) | float[4,1,1] c",
    "minimum": "Min (x, c) | float[4,1,1] c",
    "concat": "Concat <axis = 1> (x, c, x) | float[2,1,6,7] c",
    "slice": "Slice (x, begin, end, axes, steps) | int64[2] begin = {1, -1}, int64[2] end = {4, -7}, "
    "int64[2] axes = {1, 3}, int64[2] steps = {2, -2}",
    "reshape": "Reshape (x, shape) | int64[3] shape = {2, -1, 7}",
    "flatten": "Flatten <axis = 2> (x)",
    "transpose": "Transpose <perm = [0,3,1,2]> (x)",
    "unsqueeze": "Unsqueeze (x, axes) | int64[1] axes = {2}",
    "pad": "Pad (x, pads) | int64[8] pads = {0,0,1,2,0,0,2,0}",
    "pad number": "Pad (x, pads, c) | int64[8] pads = {0,1,0,0,0,0,0,3}, float c = {0.37}",
    "pad edge": 'Pad <mode = "edge"> (x, pads) | int64[8] pads = {0,0,1,2,0,0,2,0}',
    "gather": "Gather <axis = 3> (x, at) | int64[2,2] at = {0, -1, 3, 3}",
    "tile": "Tile (x, repeats) | int64[4] repeats = {1,2,1,1}",
    "expand": "Expand (x, shape) | int64[5] shape = {2,1,1,1,1}",
    "depth": "DepthToSpace <blocksize = 2> (x)",
    "space": "SpaceToDepth <blocksize = 1> (x)",
    "resize": 'Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> '
    "(x, , scales) | float[4] scales = {1, 1, 2, 3}",
    "equal": "Equal (x, c) | float[4,1,1] c",
    "greater": "Greater (x, c) | float[4,1,1] c",
    "less": "Less (c, x) | float[2,4,6,7] c",
    "argmax": "ArgMax <axis = 1> (x)",
    "argmin": "ArgMin <axis = 3, keepdims = 0> (x)",
    "relu": "Relu (x)",
    "clip": "Clip (x, low, high) | float low = {-0.3}, float high = {1.1}",
    "leaky": "LeakyRelu <alpha = 0.3> (x)",
    "slope": "PRelu (x, slope) | float slope",
    "slopes": "PRelu (x, slope) | float[4,1,1] slope",
    "power": "Pow (x, exponent) | float exponent = {3}",
    "root": "Pow (x, exponent) | float exponent = {0.5}",
    "elu": "Elu <alpha = 0.7> (x)",
    "hard sigmoid": "HardSigmoid <alpha = 0.17, beta = 0.4> (x)",
    **{
        name.lower(): f"{name} (x)"
        for name in ("Abs", "Atan", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Log", "Mish", "Neg",
                     "Reciprocal", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh")
    },
}  # fmt: skip


UNDEFINED = ("log", "root", "sqrt")
"""Their results on negative numbers are not a number, which the reference takes for zero."""


@pytest.fixture(scope="module")
def compiled_together(plugins_in_integers, tmp_path_factory):
    """All cases of a format and an opset, as one model whose names begin with the number of the case."""
    known = {}

    def make(format_, opset):
        if (format_, opset) not in known:
            whole = onnx.ModelProto(ir_version=10)
            whole.opset_import.add(version=opset)
            whole.graph.name = "cases"
            for number, (name, text) in enumerate(CASES.items()):
                if opset_of(name, format_) == opset:
                    one = onnx.compose.add_prefix(model_of(text, opset=opset), f"c{number}_").graph
                    for part in ("node", "input", "output", "initializer", "value_info"):
                        getattr(whole.graph, part).extend(getattr(one, part))
            folder = tmp_path_factory.mktemp("models")
            known[format_, opset] = Both(whole, file_for(format_), plugins_in_integers, folder)
        return known[format_, opset]

    return make


def opset_of(case, format_):
    return {"mish": 18, "hardswish": 18}.get(case, 13 if format_ in ("ties", "uint8") else 17)


@pytest.mark.generated(one_of=12, others=4)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_every_operator_computes_the_integers_of_the_reference(case, format_, compiled_together):
    both = compiled_together(format_, opset_of(case, format_))
    prefix = f"c{list(CASES).index(case)}_"
    assert both.operators(prefix)
    assert not CONVERSIONS & both.operators(prefix)
    both.agrees(prefix)
    if case not in UNDEFINED:
        both.is_near_floats(prefix)


MATRIX = "float[5,8] x"
SEVERAL = "float[2,4,6,7] x, float[2,4,7,6] z"
CONV = "float[6,4,3,3] w, float[6] b"
# Other inputs, or several nodes.
GRAPHS = {
    "gemm": (MATRIX, "Gemm (x, w, c) | float[8,6] w, float[6] c"),
    "gemm turned weight": (MATRIX, "Gemm <transB = 1> (x, w, c) | float[6,8] w, float[6] c"),
    "gemm turned input": (MATRIX, "Gemm <transA = 1> (x, w) | float[5,3] w"),
    "gemm and relu": (MATRIX, "h = Gemm (x, w, c) y = Relu (h) | float[8,6] w, float[6] c"),
    "product of two": (SEVERAL, "MatMul (x, z)"),
    "sequence conv": ("float[2,4,20] x", "Conv <pads = [2,0], strides = [2]> (x, w, b) | float[6,4,3] w, float[6] b"),
    "volume conv": ("float[1,4,4,5,6] x", "Conv <pads = [1,1,1,1,1,1]> (x, w, b) | float[6,4,3,3,3] w, float[6] b"),
    "sequence deconv": (
        "float[2,4,9] x",
        "ConvTranspose <strides = [3], pads = [1,1]> (x, w, b) | float[4,6,4] w, float[6] b",
    ),
    "conv and relu": (IMAGE, f"h = Conv (x, w, b) y = Relu (h) | {CONV}"),
    "conv and clip": (
        IMAGE,
        f"h = Conv (x, w, b) y = Clip (h, low, high) | {CONV}, float low = {{-0.4}}, float high = {{2.1}}",
    ),
    "add and relu": (SEVERAL, "t = Transpose <perm = [0,1,3,2]> (z) h = Add (x, t) y = Relu (h)"),
    "sum of three": (SEVERAL, "t = Transpose <perm = [0,1,3,2]> (z) n = Neg (x) y = Sum (x, t, n)"),
    "split": (IMAGE, "a, b = Split <axis = 1> (x) s = Sigmoid (a) y = Mul (s, b)"),
    "largest": (IMAGE, "y, places = TopK <axis = 3> (x, k) | int64[1] k = {3}"),
    "residual": (
        IMAGE,
        "a = Conv <pads = [1,1,1,1]> (x, w, b) r = Relu (a) y = Add (r, x) | float[4,4,3,3] w, float[4] b",
    ),
    "gate": (
        IMAGE,
        "m = GlobalAveragePool (x) e = Conv (m, w, b) s = Sigmoid (e) y = Mul (x, s) | float[4,4,1,1] w, float[4] b",
    ),
    "attention": (SEVERAL, "a = MatMul (x, z) t = Transpose <perm = [0,1,3,2]> (z) y = MatMul (a, t)"),
}


@pytest.mark.generated
@pytest.mark.parametrize("format_", ["int8", "int16"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_whole_graphs_compute_the_integers_of_the_reference(graph, format_, both):
    given, text = GRAPHS[graph]
    found = both(text, given, format_)
    assert not CONVERSIONS & found.operators()
    found.agrees()


TAILS = [
    (IMAGE, f"Conv <pads = [1,1,1,1]> (x, w, b) | {CONV}"),
    (IMAGE, "ConvTranspose <strides = [2,2]> (x, w, b) | float[4,3,2,2] w, float[3] b"),
    (MATRIX, "Gemm (x, w, c) | float[8,6] w, float[6] c"),
    (MATRIX, "Gemm <transB = 1> (x, w, c) | float[6,8] w, float[6] c"),
    (MATRIX, "MatMul (x, w) | float[8,6] w"),
    (SEVERAL, "MatMul (x, z)"),
]
WITH_TAILS = ("Y: [a, tail]", "Y: [tail, a]")


@pytest.mark.generated
@pytest.mark.parametrize("format_", ["int8", "int16"])
@pytest.mark.parametrize(("given", "text"), TAILS, ids=lambda part: part.split(" ")[0])
def test_sums_that_leave_their_region_are_scaled_once(given, text, format_, both):
    found = both(text, given, format_, WITH_TAILS)
    assert not CONVERSIONS & found.operators()
    assert {"ConvInteger", "MatMulInteger"} & found.operators()
    assert "Round" not in found.operators()
    found.agrees()
