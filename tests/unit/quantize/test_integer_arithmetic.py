"""`arithmetic: integers`: what runs here is what an accelerator with integers computes, bit for bit."""

import os

import dovetail
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from .integer_reference import run

FILE = """
backend: npu
device: npu
opset: 13..26
precision: {low: int8, high: float32}
types:
  a: {dtype: ELEMENT, scheme: SCHEME, observer: most}
  w0: {dtype: int8, scheme: WSCHEME, granularity: channel, axis: 0, observer: minmax}
  w1: {dtype: int8, scheme: WSCHEME, granularity: channel, axis: 1, observer: minmax}
  w: {dtype: int8, scheme: WSCHEME, observer: minmax}
  b: {dtype: int32, scale: X*W}
  tail: {dtype: int32, scale: X*W, when: {region.last: true}}
groups:
  functions: [Abs, Atan, Ceil, Cos, Elu, Erf, Exp, Floor, HardSigmoid, HardSwish, LeakyRelu, Log, Mish, Neg, Reciprocal,
              Relu, Round, Sigmoid, Sign, Sin, Softplus, Softsign, Sqrt, Tan, Tanh]
  moved: [Concat, DepthToSpace, Expand, Flatten, Gather, GlobalMaxPool, Max, MaxPool, Min, Pad, ReduceMax, Reshape,
          Slice, SpaceToDepth, Split, Squeeze, Tile, TopK, Transpose, Unsqueeze]
ops:
  Conv: {types: {X: a, W: w0, B: b, Y: [a, tail]}, fuses: [Relu, Clip]}
  ConvTranspose: {types: {X: a, W: w1, B: b, Y: [a, tail]}, fuses: [Relu, Clip]}
  Gemm:
    fuses: [Relu, Clip]
    rows:
      - when: {transB: 1}
        types: {A: a, B: w0, C: b, Y: [a, tail]}
      - types: {A: a, B: w1, C: b, Y: [a, tail]}
  MatMul:
    rows:
      - {when: {B.constant: true}, types: {A: a, B: w, Y: [a, tail]}}
      - types: {A: a, B: a, Y: [a, tail]}
  Add, Sub, Sum, Mul: {types: a, fuses: [Relu, Clip]}
  Add, Mul: {same_scale: false}
  AveragePool, GlobalAveragePool: {types: {X: a, Y: a}}
  ReduceMean, ReduceSum: {types: {data: a, reduced: a}}
  $functions: {types: a}
  Clip: {types: {input: a, output: a}}
  PRelu: {types: {X: a, Y: a}}
  Pow: {types: {X: a, Z: a}}
  $moved: {types: a}
  Resize: {types: {X: a, Y: a}}
  Equal, Greater, Less: {types: {A: a, B: a}}
  ArgMax, ArgMin: {types: {data: a}}
  Softmax: {types: a}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], arithmetic: integers}
"""
FILE = FILE.replace("  Add, Mul: {same_scale: false}\n", "").replace(", observer: most", "")

FORMATS = {
    "int8": {"ELEMENT": "int8", "WSCHEME": "symmetric", "SCHEME": "symmetric"},
    # Every product and quotient of scales is a power of two, so that many numbers lie between two integers.
    "ties": {"ELEMENT": "int8", "WSCHEME": "power-of-two", "SCHEME": "power-of-two"},
    "uint8": {"ELEMENT": "uint8", "WSCHEME": "symmetric", "SCHEME": "asymmetric"},
    "int16": {"ELEMENT": "int16", "WSCHEME": "symmetric", "SCHEME": "symmetric"},
}

IMAGE = "float[2,4,6,7] x"
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
    "matmul": "MatMul (x, w) | float[7,5] w",
    "matmul batched": "MatMul (x, w) | float[1,4,7,5] w",
    "add scalar": "Add (x, c) | float c",
    "add channel": "Add (x, c) | float[4,1,1] c",
    "sub": "Sub (c, x) | float[6,7] c",
    "mul channel": "Mul (x, c) | float[1,4,1,1] c",
    "square": "Mul (x, x)",
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


def model_of(text, given=IMAGE, opset=17):
    """A model with one node or several; `text` ends with weights behind a bar, those without numbers are normal."""
    body, _, weights = text.partition(" | ")
    outputs = "y" if "y, " not in body else "y, places"
    nodes = body if "=" in body.split("(")[0].split("<")[0] else f"y = {body}"
    head = f'<ir_version: 10, opset_import: ["": {opset}]>\ng ({given}) => ({outputs})'
    proto = onnx.parser.parse_model(f"{head} <{weights}> {{ {nodes} }}" if weights else f"{head} {{ {nodes} }}")
    rng = np.random.default_rng(5)
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (rng.standard_normal(shape) * 0.6).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    return onnx.shape_inference.infer_shapes(proto)


POSITIVE = ("Log", "Sqrt", "Pow")
"""Operators whose ranges are not finite on negative numbers."""


def inputs_of(proto, seed=0):
    """Numbers in usual ranges for calibration, and others that reach every integer and beyond both ends."""
    rng = np.random.default_rng(seed)
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in proto.graph.input}
    usual = [{name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(3)]
    if any(node.op_type in POSITIVE for node in proto.graph.node):
        usual = [{name: np.abs(array) + np.float32(0.01) for name, array in one.items()} for one in usual]
    wide = {}
    for name, shape in shapes.items():
        array = rng.uniform(-6, 6, shape).astype(np.float32)
        flat = array.reshape(-1)
        flat[::2] = np.linspace(-4, 4, flat[::2].size)
        wide[name] = rng.permuted(flat).reshape(shape)
    return usual, wide


@pytest.fixture
def both(with_backend, tmp_path):
    """A model between conversions, and in integers, with outputs of both: those of the reference, and what runs."""

    def make(proto, words, *changes, file=FILE, backend="npu", data=None, feeds=None):
        for before, after in (*words.items(), *changes):
            assert before in file
            file = file.replace(before, after)
        usual, wide = inputs_of(proto)
        results = []
        for dropped in (True, False):
            plugins = with_backend(file)
            if dropped:
                plugins.registry.pass_.drop("integer-arithmetic")
            results.append(dovetail.compile(proto, backend, data=data or usual, plugins=plugins))
        between, integers = results
        expected = run(proto_of(between, tmp_path), feeds or wide)
        return between, integers, expected, executed(integers, feeds or wide, tmp_path)

    return make


def proto_of(result, tmp_path):
    result.model.save(tmp_path / "model.onnx")
    return onnx.load(tmp_path / "model.onnx")


def executed(result, feeds, tmp_path, optimised=True):
    """What ONNX Runtime computes of the model as it is saved."""
    result.model.save(tmp_path / "model.onnx")
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options)
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds)))


def assert_same(expected, given):
    assert expected.keys() == given.keys()
    for name, array in expected.items():
        assert array.dtype == given[name].dtype and array.shape == given[name].shape
        off = np.flatnonzero(array.reshape(-1) != given[name].reshape(-1))
        assert not off.size, f"{name}: {off.size} of {array.size} differ, {array.flat[off[0]]} at first"


def operators(result, backend="npu"):
    from dovetail.planning.placement import get_placement

    return [node.op_type for node in result.model.graph if get_placement(node).backend == backend]


CONVERSIONS = {"QuantizeLinear", "DequantizeLinear"}


def pairs():
    """Every case in int8 and in one of the other formats; in all of them with DOVETAIL_SLOW=1."""
    others = [name for name in FORMATS if name != "int8"]
    for index, case in enumerate(CASES):
        slow = os.environ.get("DOVETAIL_SLOW") == "1"
        yield from ((case, name) for name in ("int8", *(others if slow else others[index % 3 :][:1])))


@pytest.mark.parametrize(("case", "format_"), list(pairs()))
def test_every_operator_computes_the_integers_of_the_reference(case, format_, both):
    proto = model_of(CASES[case], opset=(13, 17)[len(case) % 2] if case not in ("mish", "hardswish") else 18)
    between, integers, expected, given = both(proto, FORMATS[format_])
    assert "DequantizeLinear" in operators(between)
    assert not CONVERSIONS & set(operators(integers))
    assert_same(expected, given)


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


@pytest.mark.parametrize("format_", ["int8", "int16"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_whole_graphs_compute_the_integers_of_the_reference(graph, format_, both):
    given, text = GRAPHS[graph]
    _, integers, expected, out = both(model_of(text, given), FORMATS[format_])
    assert not CONVERSIONS & set(operators(integers))
    assert_same(expected, out)


@pytest.mark.parametrize("format_", ["int8", "int16"])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        (IMAGE, f"Conv <pads = [1,1,1,1]> (x, w, b) | {CONV}"),
        (IMAGE, "ConvTranspose <strides = [2,2]> (x, w, b) | float[4,3,2,2] w, float[3] b"),
        (MATRIX, "Gemm (x, w, c) | float[8,6] w, float[6] c"),
        (MATRIX, "Gemm <transB = 1> (x, w, c) | float[6,8] w, float[6] c"),
        (MATRIX, "MatMul (x, w) | float[8,6] w"),
        (SEVERAL, "MatMul (x, z)"),
    ],
)
def test_sums_that_leave_their_region_are_scaled_once(given, text, format_, both):
    _, integers, expected, out = both(model_of(text, given), FORMATS[format_], ("Y: [a, tail]", "Y: [tail, a]"))
    assert not CONVERSIONS & set(operators(integers))
    assert {"ConvInteger", "MatMulInteger"} & set(operators(integers))
    assert_same(expected, out)
