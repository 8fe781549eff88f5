"""What a model between QuantizeLinear and DequantizeLinear computes on an accelerator that has integers alone.

This is the contract of `arithmetic: integers`, in int64 and float64 of NumPy, one value after the other. It reads the
model as the pass `quantize` leaves it, and knows nothing of the pass `integer-arithmetic`.

Integers stand for real = (integer - zero point) * scale. What a node computes is an exact integer until something says
how it is held; then there is one multiplication in float64, one rounding to even, and a clip.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator


@dataclass(frozen=True)
class Scale:
    """How integers are held."""

    scale: np.ndarray  # float64, shaped to broadcast
    zero: np.ndarray
    dtype: np.dtype

    def clip(self, integers):
        """Saturate, and store."""
        limits = np.iinfo(self.dtype)
        return np.clip(integers, limits.min, limits.max).astype(self.dtype)


@dataclass(frozen=True)
class Numbers:
    """Exact integers that stand for integer * scale / count, whose multiplier waits for a scale to be held in.

    A sum has several of them. Bounds are those of a Relu or Clip behind.
    """

    integers: np.ndarray  # int64, without zero point
    scale: np.ndarray  # float64
    count: np.ndarray | int = 1
    low: float = -math.inf
    high: float = math.inf

    def held(self, wanted):
        return bounded(self.units(wanted), wanted, self.low, self.high)

    def units(self, wanted):
        return self.integers.astype(np.float64) * (self.scale / (wanted.scale * self.count))

    def floats(self):
        return self.integers.astype(np.float32) * self.scale.astype(np.float32)

    def real(self):
        return self.integers.astype(np.float64) * self.scale


class Quantized(Numbers):
    """The integers of a quantized value."""


@dataclass(frozen=True)
class Sum:
    """Operands of an addition, each with its own multiplier."""

    terms: tuple
    low: float = -math.inf
    high: float = math.inf

    def held(self, wanted):
        total = self.terms[0].units(wanted)
        for term in self.terms[1:]:
            total = total + term.units(wanted)
        return bounded(total, wanted, self.low, self.high)


@dataclass(frozen=True)
class Moved:
    """Operands that are brought to the scale of the result first, and then chosen from."""

    operands: tuple
    choose: object

    def held(self, wanted):
        return self.choose(*(operand.held(wanted) for operand in self.operands), wanted=wanted)


@dataclass(frozen=True)
class Function:
    """A function of single numbers, computed in float64 for every integer."""

    numbers: Numbers
    function: object
    low: float = -math.inf
    high: float = math.inf

    def held(self, wanted):
        real = self.numbers.real()
        found = {number: evaluated(self.function, number) for number in np.unique(real).tolist()}
        units = np.vectorize(lambda number: found[number] / float(wanted.scale), otypes=[np.float64])(real)
        return bounded(np.where(np.isnan(units), 0.0, units), wanted, self.low, self.high)


def evaluated(function, number):
    try:
        return function(number)
    except OverflowError:
        return math.inf
    except ZeroDivisionError:
        return math.copysign(math.inf, number)
    except ValueError:  # outside of the domain
        return math.nan


def bounded(units, wanted, low, high):
    """Round halves to even, add the zero point, and saturate at the type and at the bounds of an activation."""
    integers = np.rint(units) + wanted.zero
    limits = np.iinfo(wanted.dtype)
    ends = [min(max(np.rint(end / wanted.scale) + wanted.zero, limits.min), limits.max) for end in (low, high)]
    return np.clip(integers, *ends).astype(wanted.dtype)


def run(model: onnx.ModelProto, feeds):
    """The outputs of a model for these inputs."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    values = {**constants, **feeds, "": None}
    version = next(one.version for one in model.opset_import if not one.domain)
    for node in model.graph.node:
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        inputs = [values[name] for name in node.input]
        if node.op_type == "QuantizeLinear":
            wanted = scale_of(inputs[1], inputs[2], attributes)
            found = quantized(inputs[0], wanted)
        elif node.op_type == "DequantizeLinear":
            zero = inputs[2] if len(inputs) > 2 else np.zeros_like(inputs[0], shape=())
            held = scale_of(inputs[1], zero, attributes, np.ndim(inputs[0]))
            found = Quantized(inputs[0].astype(np.int64) - held.zero, held.scale)
        elif any(isinstance(one, (Numbers, Sum, Moved, Function)) for one in inputs) and not is_elsewhere(node):
            found = computed(node, attributes, inputs, version)
        else:
            found = evaluate(node, [as_floats(one) for one in inputs], version)
        results = found if isinstance(found, tuple) else (found,)
        values.update(zip(node.output, results))
    return {output.name: as_floats(values[output.name]) for output in model.graph.output}


def scale_of(scale, zero, attributes, rank=1):
    scale, zero = scale.astype(np.float64), np.asarray(zero)
    shape = ()
    if scale.size > 1:
        axis = attributes.get("axis", 1) % rank
        shape = tuple(-1 if index == axis else 1 for index in range(rank))
    return Scale(scale.reshape(shape), zero.astype(np.int64).reshape(shape), zero.dtype)


def quantized(value, wanted):
    if not isinstance(value, np.ndarray):
        return value.held(wanted)
    with np.errstate(over="ignore"):
        units = np.rint(value.astype(np.float32) / wanted.scale.astype(np.float32))
    return wanted.clip(units.astype(np.float64) + wanted.zero)


def as_floats(value):
    return value.floats() if isinstance(value, Numbers) else value


def is_elsewhere(node):
    """Whether another backend has a node, so that it computes floats."""
    return any(one.key == "dovetail.backend" and one.value == "host" for one in node.metadata_props)


def computed(node, attributes, inputs, version):
    """What a node makes of numbers in integers."""
    operator, data = node.op_type, inputs[0]
    if operator in ("Relu", "Clip") and not isinstance(data, Quantized):
        # Behind a sum it is a bound.
        low, high = (0.0, math.inf) if operator == "Relu" else bounds(inputs)
        return replace(data, low=low, high=high)
    if operator in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return product(operator, attributes, inputs)
    if operator in ("Add", "Sub", "Sum"):
        last = [replace(one, scale=-one.scale) if operator == "Sub" else one for one in inputs[1:]]
        return Sum((data, *last))
    if operator == "Mul":
        return Numbers(data.integers * inputs[1].integers, data.scale * inputs[1].scale)
    if operator in ("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"):
        return average(node, attributes, inputs, version)
    if operator in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        return evaluate(node, [one.real() for one in inputs], version)
    if operator in ("ArgMax", "ArgMin"):
        return evaluate(node, [data.integers], version)
    if operator == "BatchNormalization":
        factor, summand, mean, variance = (array.astype(np.float64) for array in inputs[1:5])
        slope = factor / np.sqrt(variance + float(np.float32(attributes.get("epsilon", 1e-5))))
        shape = (-1, *(1,) * (data.integers.ndim - 2))
        shift = (summand - mean * slope).reshape(shape)
        return Sum((replace(data, scale=slope.reshape(shape) * data.scale), Numbers(np.ones((), np.int64), shift)))
    if operator == "PRelu" and np.size(inputs[1]) > 1:
        negative = np.minimum(data.integers, 0)
        slopes = np.asarray(inputs[1], np.float64)
        return Sum((replace(data, integers=np.maximum(data.integers, 0)), Numbers(negative, slopes * data.scale)))
    if operator in FUNCTIONS:
        return Function(data, FUNCTIONS[operator](attributes, inputs))
    if operator == "TopK":
        return largest(attributes, inputs)
    return movement(node, inputs, version)


def largest(attributes, inputs):
    """The first of equal integers comes first."""
    axis, number = attributes.get("axis", -1), int(inputs[1].item())
    order = inputs[0].integers if not attributes.get("largest", 1) else -inputs[0].integers
    places = np.take(np.argsort(order, axis, kind="stable"), np.arange(number), axis)
    return Moved((inputs[0],), lambda integers, wanted: np.take_along_axis(integers, places, axis)), places


def bounds(inputs):
    low, high = (inputs[index] if index < len(inputs) else None for index in (1, 2))
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def product(operator, attributes, inputs):
    x, w = inputs[:2]
    bias = inputs[2].integers if len(inputs) > 2 and inputs[2] is not None else None
    if operator == "MatMul":
        return Numbers(x.integers @ w.integers, x.scale * w.scale)
    if operator == "Gemm":
        left = x.integers.T if attributes.get("transA") else x.integers
        right = w.integers.T if attributes.get("transB") else w.integers
        scale = w.scale.T if attributes.get("transB") else w.scale
        return Numbers(left @ right + (0 if bias is None else bias), x.scale * scale)
    spatial = (1,) * (x.integers.ndim - 2)
    group = attributes.get("group", 1)
    if operator == "Conv":
        total = convolution(x.integers, w.integers, attributes)
        scales = w.scale.reshape(-1)
    else:
        total = transposed(x.integers, w.integers, attributes)
        scales = np.tile(w.scale.reshape(-1), group) if w.scale.size > 1 else w.scale.reshape(-1)
    if bias is not None:
        total = total + bias.reshape(-1, *spatial)
    return Numbers(total, x.scale * (scales.reshape(-1, *spatial) if scales.size > 1 else scales.reshape(())))


def geometry(extents, kernel, attributes):
    """Strides, dilations, and the pads at begin and end of every axis."""
    rank = len(extents)
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * 2 * rank)
    pairs = [(pads[axis], pads[rank + axis]) for axis in range(rank)]
    auto = attributes.get("auto_pad", b"NOTSET").decode()
    if auto.startswith("SAME"):
        pairs = []
        for axis in range(rank):
            results = -(-extents[axis] // strides[axis])
            total = max((results - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - extents[axis], 0)
            pair = (total // 2, total - total // 2)
            pairs.append(pair if auto == "SAME_UPPER" else pair[::-1])
    return strides, dilations, [(0, 0)] * rank if auto == "VALID" else pairs


def patches(x, kernel, strides, dilations):
    """Every window of x, with its elements in the last axes."""
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, x.ndim)))
    chosen = [slice(None), slice(None), *(slice(None, None, step) for step in strides)]
    return windows[(*chosen, *(slice(None, None, step) for step in dilations))]


def convolution(x, w, attributes):
    kernel, group, rank = w.shape[2:], attributes.get("group", 1), x.ndim - 2
    strides, dilations, pads = geometry(x.shape[2:], kernel, attributes)
    windows = patches(np.pad(x, [(0, 0), (0, 0), *pads]), kernel, strides, dilations)
    results = []
    for part, weights in zip(np.split(windows, group, axis=1), np.split(w, group)):
        axes = (1, *range(part.ndim - rank, part.ndim))
        results.append(np.moveaxis(np.tensordot(part, weights, (axes, tuple(range(1, w.ndim)))), -1, 1))
    return np.concatenate(results, axis=1)


def transposed(x, w, attributes):
    """Every pixel adds its multiple of the kernel to the result."""
    kernel, group, rank = w.shape[2:], attributes.get("group", 1), x.ndim - 2
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    extra = attributes.get("output_padding", [0] * rank)
    whole = [
        (x.shape[2 + axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 + extra[axis]
        for axis in range(rank)
    ]
    pads = attributes.get("pads", [0] * 2 * rank)
    auto, wanted = attributes.get("auto_pad", b"NOTSET").decode(), attributes.get("output_shape")
    if wanted or auto.startswith("SAME"):
        wanted = wanted or [size * stride for size, stride in zip(x.shape[2:], strides)]
        over = [max(size - asked, 0) for size, asked in zip(whole, wanted)]
        first = [size // 2 if auto == "SAME_UPPER" else size - size // 2 for size in over]
        pads = [*first, *(size - one for size, one in zip(over, first))]
    total = np.zeros((x.shape[0], w.shape[1] * group, *whole), np.int64)
    for number, (part, weights) in enumerate(zip(np.split(x, group, axis=1), np.split(w, group))):
        channels = slice(number * w.shape[1], (number + 1) * w.shape[1])
        for pixel in np.ndindex(*x.shape[2:]):
            for tap in np.ndindex(*kernel):
                at = tuple(p * s + t * d for p, s, t, d in zip(pixel, strides, tap, dilations))
                total[(slice(None), channels, *at)] += part[(..., *pixel)] @ weights[(..., *tap)]
    return total[(..., *(slice(pads[axis], whole[axis] - pads[rank + axis]) for axis in range(rank)))]


def average(node, attributes, inputs, version):
    data = inputs[0]
    x = data.integers
    if node.op_type == "AveragePool":
        kernel = attributes["kernel_shape"]
        strides, dilations, pads = geometry(x.shape[2:], kernel, attributes)
        # Where the last window reaches further than the pads, nothing is there.
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations)]
        more = [0] * len(kernel)
        if attributes.get("ceil_mode"):
            for axis, (begin, end) in enumerate(pads):
                left = (x.shape[2 + axis] + begin + end - reach[axis]) % strides[axis]
                starts_inside = x.shape[2 + axis] + begin + end - left - reach[axis] + strides[axis]
                if left and starts_inside < x.shape[2 + axis] + begin:
                    more[axis] = strides[axis] - left
        included = attributes.get("count_include_pad", 0)
        there = np.pad(np.ones((1, 1, *x.shape[2:]), np.int64), [(0, 0), (0, 0), *pads], constant_values=included)
        beyond = [(0, 0), (0, 0), *((0, one) for one in more)]
        padded = np.pad(np.pad(x, [(0, 0), (0, 0), *pads]), beyond)
        axes = tuple(range(x.ndim, 2 * x.ndim - 2))
        count = patches(np.pad(there, beyond), kernel, strides, dilations).sum(axes)
        return Numbers(patches(padded, kernel, strides, dilations).sum(axes), data.scale, count)
    if node.op_type == "GlobalAveragePool":
        axes, kept = tuple(range(2, x.ndim)), True
    else:
        given = attributes.get("axes") if len(inputs) < 2 or inputs[1] is None else inputs[1].tolist()
        axes = tuple(axis % x.ndim for axis in given) if given else tuple(range(x.ndim))
        kept = bool(attributes.get("keepdims", 1))
    count = math.prod(x.shape[axis] for axis in axes) if node.op_type != "ReduceSum" else 1
    return Numbers(x.sum(axes, keepdims=kept), data.scale, count)


def movement(node, inputs, version):
    """Operators that choose from integers or move them: as on any numbers."""
    count = len(inputs) if node.op_type in ("Concat", "Max", "Min") else 1

    def choose(*integers, wanted, output=0):
        rest = list(inputs[count:])
        moving = node
        if node.op_type == "Pad" and len(rest) == 1:
            moving = onnx.NodeProto()
            moving.CopyFrom(node)
            moving.input.append("added")
        if node.op_type == "Pad":
            number = rest[1] if len(rest) > 1 and rest[1] is not None else np.float32(0)
            number = number.real() if isinstance(number, Numbers) else number
            rest[1:2] = [wanted.clip(np.rint(np.float64(number) / wanted.scale) + wanted.zero).astype(np.float64)]
        found = evaluate(moving, [*(one.astype(np.float64) for one in integers), *rest], version)
        found = found if isinstance(found, tuple) else (found,)
        return found[output].astype(wanted.dtype)

    operands = tuple(inputs[:count])
    return tuple(Moved(operands, partial(choose, output=output)) for output in range(len(node.output)))


def evaluate(node, inputs, version):
    """A node on arrays, by ONNX's own evaluator."""
    given = {name: value for name, value in zip(node.input, inputs) if name and value is not None}
    types = {name: onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype) for name, value in given.items()}
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()],
        [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    found = ReferenceEvaluator(model).run(None, {name: np.asarray(value) for name, value in given.items()})
    return tuple(found) if len(found) > 1 else found[0]


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def power(x, exponent):
    found = math.pow(x, exponent)
    return math.nan if isinstance(found, complex) else found


def _float(attributes, name, default):
    return float(np.float32(attributes.get(name, default)))


def one(inputs, index):
    value = inputs[index]
    return float(value.real() if isinstance(value, Numbers) else value)


FUNCTIONS = {
    **{
        name: lambda attributes, inputs, function=function: function
        for name, function in {
            "Abs": abs, "Acos": math.acos, "Asin": math.asin, "Atan": math.atan, "Ceil": math.ceil, "Cos": math.cos,
            "Cosh": math.cosh, "Erf": math.erf, "Exp": math.exp, "Floor": math.floor, "Neg": lambda x: -x,
            "Reciprocal": lambda x: 1 / x, "Round": round, "Sigmoid": sigmoid, "Sin": math.sin, "Sinh": math.sinh,
            "Softplus": softplus, "Softsign": lambda x: x / (1 + abs(x)), "Sqrt": math.sqrt, "Tan": math.tan,
            "Tanh": math.tanh, "Relu": lambda x: max(x, 0.0), "Sign": lambda x: (x > 0) - (x < 0),
            "HardSwish": lambda x: x * min(max(x / 6 + 0.5, 0), 1),
            "Log": lambda x: math.log(x) if x else -math.inf, "Mish": lambda x: x * math.tanh(softplus(x)),
        }.items()
    },
    "Clip": lambda attributes, inputs: lambda x: min(max(x, bounds(inputs)[0]), bounds(inputs)[1]),
    "Elu": lambda attributes, inputs: lambda x: x if x >= 0 else _float(attributes, "alpha", 1.0) * math.expm1(x),
    "LeakyRelu": lambda attributes, inputs: lambda x: x if x >= 0 else x * _float(attributes, "alpha", 0.01),
    "HardSigmoid": lambda attributes, inputs: lambda x: min(
        max(_float(attributes, "alpha", 0.2) * x + _float(attributes, "beta", 0.5), 0), 1
    ),
    "Pow": lambda attributes, inputs: lambda x: power(x, one(inputs, 1)),
    "PRelu": lambda attributes, inputs: lambda x: x if x >= 0 else x * one(inputs, 1),
}  # fmt: skip
