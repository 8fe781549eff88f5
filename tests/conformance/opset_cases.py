"""Nodes in forms that the newest opset does not have any more, with what they compute where nothing runs them.

A row is an operator with its inputs and attributes; it counts for every opset whose schema takes it. `expected` stands
where neither ONNX Runtime nor the evaluator of the onnx package has a kernel: the operator's text, in numpy.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

R = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A node, its inputs (None for one that is left out), and the opsets that it is tried in."""

    op: str
    inputs: list
    attributes: dict = field(default_factory=dict)
    outputs: int = 1
    expected: Callable | None = None
    since: int = 1
    until: int = 99
    constant: tuple = ()

    def results(self):
        """What `expected` says, given those attributes that it asks for; None where nothing is said."""
        if self.expected is None:
            return None
        asked = inspect.signature(self.expected).parameters
        everything = any(one.kind is one.VAR_KEYWORD for one in asked.values())
        given = {name: value for name, value in self.attributes.items() if everything or name in asked}
        found = self.expected(*(one for one in self.inputs if one is not None), **given)
        return found if isinstance(found, list) else [found]


def f(*shape, low=-2.0, high=2.0):
    return R.uniform(low, high, shape).astype(np.float32)


def i(*shape, low=0, high=5, dtype=np.int64):
    return R.integers(low, high, shape).astype(dtype)


def b(*shape):
    return R.random(shape) > 0.5


def n(*numbers, dtype=np.int64):
    return np.array(numbers, dtype)


def aligned(a, c, axis):
    """The second operand, aligned with the axes of the first from `axis` on."""
    start = axis % a.ndim if axis is not None else a.ndim - c.ndim
    return c.reshape(c.shape + (1,) * (a.ndim - start - c.ndim))


ARITHMETIC = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": lambda a, c: np.power(np.abs(a), c),
    "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    "Equal": np.equal, "Greater": np.greater, "Less": np.less,
}  # fmt: skip


def broadcasting():
    def expecting(function, axis):
        return lambda a, c: function(a, aligned(a, c, axis))

    for op, function in ARITHMETIC.items():
        make = b if op in ("And", "Or", "Xor") else i if op == "Equal" else lambda *shape: f(*shape, low=0.5)
        kind = (lambda a: a.astype(np.int32)) if op == "Equal" else lambda a: a
        for left, right, given in (
            ((2, 3, 4, 5), (2, 3, 4, 5), {}),
            ((2, 3, 4, 5), (5,), {"broadcast": 1}),
            ((2, 3, 4, 5), (4, 5), {"broadcast": 1}),
            ((2, 3, 4, 5), (3,), {"broadcast": 1, "axis": 1}),
            ((2, 3, 4, 5), (3, 4), {"broadcast": 1, "axis": 1}),
            ((2, 3, 4, 5), (2,), {"broadcast": 1, "axis": 0}),
            ((2, 3, 4, 5), (4,), {"broadcast": 1, "axis": -2}),
            ((2, 3, 4, 5), (1,), {"broadcast": 1}),
            ((2, 3, 4, 5), (), {"broadcast": 1}),
        ):
            a, c = kind(make(*left)), kind(make(*right))
            yield Case(op, [a, c], given, until=6, expected=expecting(function, given.get("axis")))


def plain_unary():
    functions = {
        "Abs": np.abs, "Ceil": np.ceil, "Exp": np.exp, "Floor": np.floor, "Neg": np.negative,
        "Reciprocal": lambda x: 1 / x, "Relu": lambda x: np.maximum(x, 0), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Sqrt": np.sqrt, "Tanh": np.tanh, "Log": np.log,
    }  # fmt: skip
    for op, function in functions.items():
        low = 0.1 if op in ("Sqrt", "Log", "Reciprocal") else -2
        yield Case(op, [f(2, 3, low=low)], {"consumed_inputs": [0]}, expected=function)
        yield Case(op, [f(2, 3, low=low)], expected=function)
    for given in ({}, {"alpha": 0.5}):
        yield Case("LeakyRelu", [f(2, 3)], given, expected=lambda x, alpha=0.01: np.where(x < 0, alpha * x, x))
        yield Case("Elu", [f(2, 3)], given, expected=lambda x, alpha=1.0: np.where(x < 0, alpha * np.expm1(x), x))
        yield Case(
            "HardSigmoid", [f(2, 3, low=-5, high=5)], given,
            expected=lambda x, alpha=0.2: np.clip(x * np.float32(alpha) + np.float32(0.5), 0, 1),
        )  # fmt: skip
    yield Case("Selu", [f(2, 3)], until=5, expected=lambda x: 1.0507 * np.where(x <= 0, 1.6732 * np.expm1(x), x))
    yield Case("Selu", [f(2, 3)], since=6)
    yield Case("Selu", [f(2, 3)], {"alpha": 2.0, "gamma": 3.0},
               expected=lambda x, alpha, gamma: gamma * np.where(x <= 0, alpha * np.expm1(x), x))  # fmt: skip
    x = np.array([-np.inf, -3, -0.5, 0.5, 3, np.inf], np.float32)
    for given in ({}, {"min": -1.0}, {"max": 1.0}, {"min": -1.0, "max": 0.75}):
        largest = np.finfo(np.float32).max
        yield Case("Clip", [x[1:-1]], given, until=5, expected=lambda x, min=-np.inf, max=np.inf: np.clip(x, min, max))
        yield Case("Clip", [x], given, since=6, until=10,
                   expected=lambda x, min=-largest, max=largest: np.clip(x, min, max))  # fmt: skip
        yield Case("Clip", [x.astype(np.float64)], given, since=6, until=10)
    yield Case("Clip", [f(4), np.float32(-1), np.float32(1)])
    yield Case("Clip", [f(4), None, np.float32(1)])


def variadic():
    for op, function in {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min}.items():
        yield Case(op, [f(2, 3), f(2, 3), f(2, 3)], expected=lambda *x, fn=function: fn(np.stack(x), axis=0))
        yield Case(op, [f(2, 3)], expected=lambda x: x)
        yield Case(op, [f(2, 3), f(3)], since=8)
    yield Case("Concat", [f(2, 3), f(2, 2)], until=3, expected=lambda *x: np.concatenate(x, 1))
    yield Case("Concat", [f(2, 3), f(1, 3)], {"axis": 0}, expected=lambda *x, axis: np.concatenate(x, axis))
    yield Case("Concat", [f(2, 3), f(2, 3)], {"axis": -1}, since=11)


def shapes():
    x = f(2, 3, 4)
    yield Case("Reshape", [x], {"shape": [4, 6]}, expected=lambda x, shape: x.reshape(shape))
    yield Case("Reshape", [x], {"shape": [0, -1]}, expected=lambda x, shape: x.reshape(2, 12))
    yield Case("Reshape", [x, n(0, -1)], since=5)
    for axes in ([1], [0, 2], None, [-1]):
        given = {} if axes is None else {"axes": axes}
        since = 11 if axes == [-1] else 1
        for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
                   "ReduceProd", "ReduceSum", "ReduceSumSquare"):  # fmt: skip
            for keep in (0, 1):
                yield Case(op, [f(2, 3, 4, low=0.1)], {**given, "keepdims": keep}, since=since)
        yield Case("ReduceSum", [i(2, 3, 4)], given, since=since)
    for op in ("ReduceLogSum", "ReduceLogSumExp"):
        yield Case(op, [i(2, 3, low=1, dtype=np.int32)], {"axes": [1]})
        yield Case(op, [i(2, 3, low=1, dtype=np.int32), n(1)], since=18)
        yield Case(op, [i(2, 3, low=1, dtype=np.int64), n(1)], {"keepdims": 0}, since=18)
    for op in ("ArgMax", "ArgMin"):
        for given in ({}, {"axis": 1, "keepdims": 0}):
            yield Case(op, [x], given)
        yield Case(op, [x], {"axis": -1}, since=11)
    yield Case("Squeeze", [f(1, 3, 1)], {"axes": [0, 2]})
    yield Case("Squeeze", [f(1, 3, 1)], {})
    yield Case("Squeeze", [f(1, 3, 1)], {"axes": [-1]}, since=11)
    yield Case("Unsqueeze", [f(3, 4)], {"axes": [0, 3]})
    yield Case("Unsqueeze", [f(3, 4)], {"axes": [-1]}, since=11)
    for axis in (0, 1, 2, 3):
        yield Case("Flatten", [f(2, 3, 4)], {"axis": axis})
    yield Case("Flatten", [f(2, 3, 4)])
    yield Case("Transpose", [x])
    yield Case("Transpose", [x], {"perm": [2, 0, 1]})
    for op in ("Shape", "Size", "Identity"):
        yield Case(op, [x])
    yield Case("Shape", [x], {"start": 1, "end": -1}, since=15)
    yield Case("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2})
    yield Case("SpaceToDepth", [f(1, 2, 4, 6)], {"blocksize": 2})
    yield Case("Tile", [f(2, 3), np.float32(2), np.float32(1)], constant=(1, 2), until=5,
               expected=lambda x, t, a: np.tile(x, (1, 2)))  # fmt: skip
    yield Case("Tile", [f(2, 3), n(2, dtype=np.int64)[0], n(0, dtype=np.int64)[0]], constant=(2,), until=5,
               expected=lambda x, t, a: np.tile(x, (2, 1)))  # fmt: skip
    yield Case("Tile", [f(2, 3), n(2, 2)], since=6)
    yield Case("Expand", [f(3, 1), n(2, 3, 4)], since=8)
    yield Case("Cast", [f(2, 3)], {"to": "INT32"}, until=5, expected=lambda x, to: x.astype(np.int32))
    yield Case("Cast", [f(2, 3)], {"to": "DOUBLE"}, until=5, expected=lambda x, to: x.astype(np.float64))
    for kind in (TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.UINT8):
        yield Case("Cast", [f(2, 3, low=0)], {"to": kind}, since=6)
    yield Case("Constant", [], {"value": onnx.numpy_helper.from_array(x)}, expected=lambda value: x)
    yield Case("ConstantOfShape", [n(2, 3)], {}, since=9)
    yield Case("EyeLike", [f(3, 4)], {"k": 1}, since=9)


def padding_and_slicing():
    x = f(2, 3, 4, 5)
    pads = [0, 0, 1, 2, 0, 0, 3, 1]
    widths = [(0, 0), (0, 0), (1, 3), (2, 1)]
    for mode in ("constant", "reflect", "edge"):
        yield Case("Pad", [x], {"paddings": pads, "mode": mode}, until=1,
                   expected=lambda x, paddings, mode: np.pad(x, widths, mode))  # fmt: skip
        yield Case("Pad", [x], {"pads": pads, "mode": mode}, since=2, until=10)
        yield Case("Pad", [x, np.array(pads)], {"mode": mode}, since=11)
    yield Case("Pad", [x], {"pads": pads, "value": 1.5}, since=2, until=10)
    yield Case("Pad", [x.astype(np.float64)], {"pads": pads, "value": 1.5}, since=2, until=10)
    yield Case("Pad", [x], {"pads": [0, 0, -1, 1, 0, 0, 1, -2]}, since=2, until=10)
    yield Case("Pad", [x], {"paddings": pads, "value": 1.5}, until=1,
               expected=lambda x, paddings, value: np.pad(x, widths, constant_values=value))  # fmt: skip
    for given in (
        {"starts": [0, 1], "ends": [2, -1]},
        {"starts": [1], "ends": [1000], "axes": [3]},
        {"starts": [-2, 0], "ends": [2**31, 1], "axes": [2, 0]},
    ):
        yield Case("Slice", [x], given, until=9)
    yield Case("Slice", [x, n(1), n(5), n(3), n(2)], since=10)
    yield Case("Split", [f(4, 6)], {"axis": 1, "split": [2, 4]}, outputs=2,
               expected=lambda x, axis, split: [x[:, :2], x[:, 2:]])  # fmt: skip
    yield Case("Split", [f(4, 6)], {"axis": 1}, outputs=3, expected=lambda x, axis: np.split(x, 3, 1))
    yield Case("Split", [f(4, 6)], {"axis": 0}, outputs=2, expected=lambda x, axis: np.split(x, 2, 0))
    yield Case("Split", [f(4, 6)], {}, outputs=2, expected=lambda x: np.split(x, 2, 0))
    yield Case("Split", [f(4, 6), np.float32([2, 4])], {"axis": 1}, outputs=2, until=1, constant=(1,),
               expected=lambda x, s, axis: [x[:, :2], x[:, 2:]])  # fmt: skip
    yield Case("Split", [f(4, 6), n(2, 4)], {"axis": 1}, outputs=2, since=13)
    yield Case("TopK", [f(3, 6)], {"k": 2, "axis": 1}, outputs=2, until=9, expected=lambda x, k, axis: [
        -np.sort(-x, axis)[:, :k], np.argsort(-x, axis)[:, :k]])  # fmt: skip
    yield Case("TopK", [f(3, 6)], {"k": 2}, outputs=2, until=9, expected=lambda x, k: [
        -np.sort(-x, 1)[:, :k], np.argsort(-x, 1)[:, :k]])  # fmt: skip
    yield Case("TopK", [f(3, 6), n(2)], {"axis": 1}, outputs=2, since=10)
    yield Case("Gather", [f(4, 3), i(2, high=4)])
    yield Case("Gather", [f(4, 3), i(2, high=3)], {"axis": 1})
    yield Case("Scatter", [f(3, 3), i(2, 3, high=3), f(2, 3)], since=9)
    yield Case("Scatter", [f(3, 4), i(3, 2, high=4), f(3, 2)], {"axis": 1}, since=9)
    for axis in (0, -1):
        yield Case("OneHot", [i(3), n(5)[0], np.float32([0, 1])], {"axis": axis}, since=9)
    yield Case("OneHot", [n(0, -1, 7), n(5)[0], np.float32([0, 1])], since=11)
    yield Case("Compress", [f(3, 4), np.array([True, False, True])], {"axis": 0}, since=9)
    yield Case("GatherND", [f(3, 4), i(2, 2, high=3)], since=11)
    yield Case("NonMaxSuppression", [f(1, 6, 4), f(1, 2, 6), n(3)[0], np.float32(0.5), np.float32(0.1)], since=10)


def softmaxes():
    x = f(2, 3, 4)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1, 2):
            yield Case(op, [x], {"axis": axis})
        for axis in (-1, -2, -3):
            yield Case(op, [x], {"axis": axis}, since=11)
        yield Case(op, [x])
        yield Case(op, [f(2, 3)])


def resizing():
    x = f(1, 2, 6, 8)
    for mode in ("nearest", "linear"):
        for scales in ([1, 1, 2, 2], [1, 1, 3, 1.5], [1, 1, 1, 1]):
            s = np.array(scales, np.float32)
            yield Case("Upsample", [x], {"mode": mode, "scales": [float(one) for one in scales]})
            yield Case("Upsample", [x, s], {"mode": mode}, since=9)
            yield Case("Upsample", [x, s], {"mode": mode}, since=9, constant=(1,))
        for scales in ([2, 2], [0.6, 0.6], [0.6, 1.7], [0.3, 0.9], [2.6, 1], [0.5, 0.5]):
            s = np.array([1, 1, *scales], np.float32)
            yield Case("Resize", [x, s], {"mode": mode}, since=10, until=10)
            yield Case("Resize", [x, s], {"mode": mode}, since=10, until=10, constant=(1,))
    yield Case("Resize", [f(6), np.float32([0.6])], {"mode": "nearest"}, since=10, until=10)
    yield Case("Resize", [x, np.float32([1, 1, 2, 2])], since=10, until=10)
    yield Case("Upsample", [x], {"height_scale": 2.0, "width_scale": 3.0}, until=6,
               expected=lambda x, height_scale, width_scale: x.repeat(2, 2).repeat(3, 3))  # fmt: skip
    for transformation in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"):
        for mode in ("nearest", "linear", "cubic"):
            for rounding in ("floor", "round_prefer_floor") if mode == "nearest" else ("round_prefer_floor",):
                if transformation == "tf_half_pixel_for_nn" and mode != "nearest":
                    continue
                given = {"coordinate_transformation_mode": transformation, "mode": mode, "nearest_mode": rounding}
                for scales in ([1, 1, 2, 2], [1, 1, 0.6, 1.5]):
                    s = np.array(scales, np.float32)
                    yield Case("Resize", [x, np.zeros(0, np.float32), s], given, since=11)
    sizes = n(1, 2, 9, 5)
    none = np.zeros(0, np.float32)
    yield Case("Resize", [x, none, none, sizes], {"mode": "linear"}, since=11)
    yield Case("Resize", [x, None, None, sizes], {"mode": "linear"}, since=13)
    boxes = np.float32([[0, 0, 5, 5], [1, 2, 6, 7]])
    for mode in ("avg", "max"):
        given = {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.7}
        yield Case("RoiAlign", [x, boxes, n(0, 0)], given, since=10)
    grid = f(1, 3, 5, 2, low=-1, high=1)
    for mode in ("bilinear", "nearest", "bicubic", "linear", "cubic", None):
        for padding in ("zeros", "border"):
            given = {"padding_mode": padding} | ({"mode": mode} if mode else {})
            until = 19 if mode in ("bilinear", "bicubic") else 99
            yield Case("GridSample", [x, grid], given, since=20 if mode in ("linear", "cubic") else 16, until=until)


def normalizing():
    x = f(2, 3, 4, 5)
    statistics = [f(3), f(3), f(3), f(3, low=0.5)]

    def inference(x, s, c, mean, variance, epsilon=1e-5, **_):
        shape = (1, -1) + (1,) * (x.ndim - 2) if s.ndim == 1 else s.shape
        s, c, mean, variance = (one.reshape(shape) for one in (s, c, mean, variance))
        return (x - mean) / np.sqrt(variance + np.float32(epsilon)) * s + c

    for given in ({"is_test": 1}, {"is_test": 1, "epsilon": 0.01}, {}):
        yield Case("BatchNormalization", [x, *statistics], given, until=6, expected=inference)
    yield Case("BatchNormalization", [x, *statistics], {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}, until=5,
               expected=inference)  # fmt: skip
    activations = [f(3, 4, 5), f(3, 4, 5), f(3, 4, 5), f(3, 4, 5, low=0.5)]
    yield Case("BatchNormalization", [x, *activations], {"spatial": 0}, until=8, expected=inference)
    yield Case("BatchNormalization", [x, *statistics], {"spatial": 1}, until=8, expected=inference)
    yield Case("BatchNormalization", [x, *statistics], {"epsilon": 0.1, "momentum": 0.5}, since=7)
    for op in ("InstanceNormalization",):
        yield Case(op, [x, f(3), f(3)])
        yield Case(op, [x, f(3), f(3)], {"epsilon": 0.1, "consumed_inputs": [0, 0, 0]}, until=5)
    for groups, channels in ((2, 4), (1, 4), (4, 4)):
        given = {"num_groups": groups}
        yield Case("GroupNormalization", [f(2, channels, 3, 3), f(groups), f(groups)], given, since=18, until=20)
        yield Case("GroupNormalization", [f(2, channels, 3), f(groups), f(groups)], given, since=18, until=20)
    yield Case("LRN", [x], {"size": 3})
    yield Case("LpNormalization", [f(3, 4)], {"axis": 1, "p": 1})
    yield Case("LpNormalization", [f(3, 4)])
    for slope in ((3,), (1,)):
        yield Case("PRelu", [x, f(*slope)], until=6, expected=lambda x, s: np.where(x < 0, x * s.reshape(-1, 1, 1), x))
    yield Case("PRelu", [f(2, 3), f(3)], expected=lambda x, s: np.where(x < 0, x * s, x))
    yield Case("PRelu", [x, f(3, 1, 1)], since=7)
    for given in ({"is_test": 1}, {"is_test": 1, "ratio": 0.3}):
        yield Case("Dropout", [x], given, until=6, expected=lambda x, **_: x)
    yield Case("Dropout", [x], {"ratio": 0.3}, since=7, until=11)
    yield Case("Dropout", [x], since=7)
    yield Case("MeanVarianceNormalization", [x], since=9)


def pooling_and_products():
    x = f(1, 2, 7, 8)
    for op in ("MaxPool", "AveragePool", "LpPool"):
        for given in (
            {},
            {"strides": [2, 2], "pads": [1, 0, 1, 1]},
            {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
            {"auto_pad": "SAME_LOWER"},
            {"auto_pad": "VALID", "strides": [2, 3]},
            {"ceil_mode": 1, "strides": [2, 2]},
            {"ceil_mode": 1, "strides": [3, 3], "pads": [1, 1, 1, 1]},
            {"ceil_mode": 1, "strides": [5, 5], "pads": [0, 0, 2, 2]},
            {"dilations": [2, 2]},
        ):
            yield Case(op, [x], {"kernel_shape": [3, 2], **given})
    for given in ({"count_include_pad": 1}, {"count_include_pad": 1, "ceil_mode": 1, "strides": [2, 2]},
                  {"count_include_pad": 1, "ceil_mode": 1, "strides": [3, 3], "pads": [1, 1, 1, 1]}):  # fmt: skip
        yield Case("AveragePool", [x], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], **given})
    yield Case("MaxPool", [x], {"kernel_shape": [2, 2]}, outputs=2, since=8)
    yield Case("LpPool", [x], {"kernel_shape": [2, 2], "p": 1}, since=2)
    yield Case("LpPool", [x], {"kernel_shape": [7, 8], "p": 1.0}, until=1,
               expected=lambda x, kernel_shape, p: np.abs(x).sum((2, 3), keepdims=True))  # fmt: skip
    yield Case("GlobalLpPool", [x], {"p": 1.0}, until=1,
               expected=lambda x, p: np.abs(x).sum((2, 3), keepdims=True))  # fmt: skip
    yield Case("GlobalLpPool", [x], {}, until=1, expected=lambda x: np.sqrt((x * x).sum((2, 3), keepdims=True)))
    yield Case("GlobalLpPool", [x], {"p": 1}, since=2)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield Case(op, [x])
    yield Case("MaxRoiPool", [x, np.float32([[0, 0, 0, 4, 4]])], {"pooled_shape": [2, 2]})
    w = f(3, 2, 3, 3)
    for given in ({}, {"pads": [1, 1, 1, 1], "strides": [2, 1]}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}):
        yield Case("Conv", [x, w, f(3)], given)
        yield Case("ConvTranspose", [f(1, 3, 4, 5), w], given)
    yield Case("ConvTranspose", [f(1, 3, 4, 5), w], {"output_shape": [9, 11], "strides": [2, 2]})
    given = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Case("MaxUnpool", [f(1, 1, 2, 2), n(5, 7, 13, 15).reshape(1, 1, 2, 2)], given, since=9)
    yield Case("MatMul", [f(2, 3), f(3, 4)])
    yield Case("MatMul", [f(5, 2, 3), f(3, 4)])

    def gemm(a, c, d, alpha=1.0, beta=1.0, transA=0, transB=0, broadcast=0):
        return alpha * (a.T if transA else a) @ (c.T if transB else c) + beta * d

    for given, shapes_ in (
        ({}, ((2, 3), (3, 4), (2, 4))),
        ({"broadcast": 1}, ((2, 3), (3, 4), (4,))),
        ({"broadcast": 1, "alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}, ((3, 2), (4, 3), (1,))),
    ):
        yield Case("Gemm", [f(*shape) for shape in shapes_], given, until=6, expected=gemm)
    yield Case("Gemm", [f(2, 3), f(3, 4), f(4)], {"alpha": 0.5}, since=7)
    yield Case("Gemm", [f(2, 3), f(3, 4)], since=11)
    yield Case("Erf", [f(3)], since=9)
    yield Case("Erf", [i(3, low=-2, dtype=np.int32)], since=9, until=12,
               expected=lambda x: np.array([np.trunc(math.erf(one)) for one in x], np.int32))  # fmt: skip
    signal = f(1, 6, 4, 1)
    for given in ({}, {"axis": 2}, {"axis": 1, "onesided": 1}, {"inverse": 0, "axis": 2}):
        yield Case("DFT", [signal], given, since=17, until=19)
        yield Case("DFT", [signal, n(8)[0]], given, since=17, until=19)


def recurrent():
    x = f(4, 2, 3)

    def as_in_opset_7(op, **attributes):
        """The first versions compute what that of opset 7 does; `output_sequence` only says which results are read."""

        def results(*inputs):
            names = ["x", "w", "r", "b"]
            node = helper.make_node(op, names, ["y", "h"], **attributes)
            values = [helper.make_tensor_value_info(name, 1, one.shape) for name, one in zip(names, inputs)]
            outputs = [helper.make_tensor_value_info(*one) for one in (("y", 1, [*"abcd"]), ("h", 1, [*"abc"]))]
            graph = helper.make_graph([node], "g", values, outputs)
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=8)
            session = onnxruntime.InferenceSession(model.SerializeToString())
            return session.run(None, dict(zip(names, inputs)))

        return results

    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        weights = [f(1, gates * 5, 3), f(1, gates * 5, 5), f(1, gates * 10)]
        for given in ({}, {"output_sequence": 1}, {"direction": "reverse"}, {"clip": 0.5}, {"linear_before_reset": 1}):
            if "linear_before_reset" in given and op != "GRU":
                continue
            yield Case(op, [x, *weights], {"hidden_size": 5, **given}, outputs=2, since=7)
            kept = {name: value for name, value in given.items() if name != "output_sequence"}
            yield Case(op, [x, *weights], {"hidden_size": 5, **given}, outputs=2, until=6,
                       expected=as_in_opset_7(op, hidden_size=5, **kept))  # fmt: skip
        both = [np.concatenate([one, one]) for one in weights]
        yield Case(op, [x, *both], {"hidden_size": 5, "direction": "bidirectional"}, outputs=2, since=7)


def quantized():
    q = i(2, 3, high=255, dtype=np.uint8)
    yield Case("QuantizeLinear", [f(2, 3), np.float32(0.1), np.uint8(3)], since=10)
    yield Case("QuantizeLinear", [f(2, 3), np.float32([0.1, 0.2, 0.3])], {"axis": 1}, since=13)
    yield Case("DequantizeLinear", [q, np.float32(0.1), np.uint8(3)], since=10)
    yield Case("DequantizeLinear", [q, np.float32(0.1)], since=10)
    yield Case("DequantizeLinear", [i(2, 3, dtype=np.int32), np.float32(0.1)], since=10)
    scale, zero = np.float32(0.05), np.uint8(128)
    yield Case("QLinearMatMul", [q, scale, zero, i(3, 2, high=255, dtype=np.uint8), scale, zero, scale, zero], since=10)


def scan_of_batches():
    """Scan of opset 8 loops over each sample of a batch; its body has no axis for the samples."""
    s, e = helper.make_tensor_value_info("s", 1, [2]), helper.make_tensor_value_info("e", 1, [2])
    out, z = helper.make_tensor_value_info("out", 1, [2]), helper.make_tensor_value_info("z", 1, [2])
    nodes = [helper.make_node("Add", ["s", "e"], ["out"]), helper.make_node("Mul", ["out", "e"], ["z"])]
    body = helper.make_graph(nodes, "body", [s, e], [out, z])
    h, x = f(3, 2), f(3, 4, 2)

    def expected(h, x, directions=(0,), **_):
        x = x[:, ::-1] if directions[0] else x
        sums = h[:, None] + np.cumsum(x, 1)
        return [sums[:, -1], sums * x]

    for given in ({}, {"directions": [1]}):
        yield Case("Scan", [None, h, x], {"body": body, "num_scan_inputs": 1, **given}, outputs=2, until=8, since=8,
                   expected=expected)  # fmt: skip
    yield Case("Scan", [h[0], x[0]], {"body": body, "num_scan_inputs": 1}, outputs=2, since=9)


CASES = [
    case
    for kind in (
        broadcasting, plain_unary, variadic, shapes, padding_and_slicing, softmaxes, resizing, normalizing,
        pooling_and_products, recurrent, quantized, scan_of_batches,
    )
    for case in kind()
]  # fmt: skip
