"""A backend that computes in integers, models for it, and what both the reference and ONNX Runtime make of them."""

import dovetail
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from dovetail.planning import get_placement
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
  BatchNormalization: {types: {X: a, Y: a}}
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


def model_of(text, given=IMAGE, opset=17):
    """A model with one node or several; `text` ends with weights behind a bar, those without numbers are normal."""
    body, _, weights = text.partition(" | ")
    outputs = "y" if "y, " not in body else "y, places"
    nodes = body if "=" in body.split("(")[0].split("<")[0] else f"y = {body}"
    head = f'<ir_version: 10, opset_import: ["": {opset}]>\ng ({given}) => ({outputs})'
    proto = onnx.parser.parse_model(f"{head} <{weights}> {{ {nodes} }}" if weights else f"{head} {{ {nodes} }}")
    for node in proto.graph.node:
        node.name = node.output[0]
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
    for name in (node.input[0] for node in proto.graph.node if node.op_type in POSITIVE):
        for one in usual:
            one[name] = np.abs(one[name]) + np.float32(0.01)
    wide = {}
    for name, shape in shapes.items():
        array = rng.uniform(-6, 6, shape).astype(np.float32)
        flat = array.reshape(-1)
        flat[::2] = np.linspace(-4, 4, flat[::2].size)
        wide[name] = rng.permuted(flat).reshape(shape)
    return usual, wide


def file_for(format_, *changes):
    """The backend's file for a format."""
    file = FILE
    for before, after in (*FORMATS[format_].items(), *changes):
        assert before in file
        file = file.replace(before, after)
    return file


class Both:
    """A model between conversions and in integers, with the outputs of the reference, and those of ONNX Runtime."""

    def __init__(self, proto, file, plugins_of, folder, **request):
        usual, feeds = inputs_of(proto)
        request = {"data": usual, "verify": False, "try_engines": False, **request}
        between, self.integers = (
            dovetail.compile(proto, "npu", plugins=plugins_of(file, dropped), **request) for dropped in (True, False)
        )
        self.between, self.feeds = proto_of(between, folder), feeds
        self.floats = executed(between, feeds, folder)
        self.expected = run(self.between, feeds)
        self.given = executed(self.integers, feeds, folder)

    def agrees(self, prefix=""):
        """Assert that both are equal bit for bit, in the outputs of that prefix."""
        names = [name for name in self.expected if name.startswith(prefix)]
        assert names
        assert self.expected.keys() == self.given.keys()
        for name in names:
            wanted, given = self.expected[name], self.given[name]
            assert wanted.dtype == given.dtype
            assert wanted.shape == given.shape
            off = np.flatnonzero(wanted != given)
            assert not off.size, f"{name}: {off.size} of {wanted.size} differ, {wanted.flat[off[0]]} at first"

    def is_near_floats(self, prefix=""):
        """Assert that hardly a number is further from what ONNX Runtime computes in floats than rounding explains."""
        for name, wanted in self.expected.items():
            if name.startswith(prefix):
                found, wanted = self.floats[name].astype(np.float64), wanted.astype(np.float64)
                assert wanted.shape == found.shape
                near = np.abs(found - wanted) <= 0.02 * np.abs(wanted).max(initial=0)
                assert (near | np.isnan(found)).mean() > 0.97

    def operators(self, prefix=""):
        """The operators of the nodes that compute on the backend."""
        nodes = (node for node in self.integers.model.graph if get_placement(node).backend == "npu")
        return {node.op_type for node in nodes if node.name.startswith(prefix)}


def proto_of(result, tmp_path):
    result.model.save(tmp_path / "model.onnx")
    return onnx.load(tmp_path / "model.onnx")


def executed(result, feeds, folder, optimized=True):
    """What ONNX Runtime computes of the model as it is saved."""
    result.model.save(folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact on CPUs without VNNI, too
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds)))


CONVERSIONS = {"QuantizeLinear", "DequantizeLinear"}
