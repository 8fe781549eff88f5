"""Operators around quantized products, each as a function that appends it to a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
Shape = tuple[int, ...]


class Impossible(Exception):
    """An operator does not take a value of this shape."""


class Chain:
    """A model that grows by one operator at a time.

    Attributes:
        value, shape: The last result and its shape.
        rng: Source of weights and attributes.
    """

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape: Shape = (int(self.rng.integers(1, 3)), 8, 9, 10)
        self.given, self.value = self.shape, "x"

    def add(self, operator: str, *more: np.ndarray | str, inputs: list[str] | None = None, **attributes: object) -> str:
        """Append a node that reads the last result and further constants or values; return its result."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        names = []
        for number, one in enumerate(more):
            if isinstance(one, str):
                names.append(one)
                continue
            names.append(f"{name}_{number}")
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(one), names[-1]))
        given = inputs if inputs is not None else [self.value, *names]
        self.nodes.append(helper.make_node(operator, given, [f"{name}_y"], name, **attributes))
        self.value = f"{name}_y"
        self.shape = self._shape_of(self.value)
        return self.value

    def weight(self, *shape: int) -> np.ndarray:
        """Return random weights whose channels differ in size."""
        scale = np.exp(self.rng.normal(0, 0.7, shape[0])).reshape(-1, *[1] * (len(shape) - 1))
        return (self.rng.standard_normal(shape) * scale / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    def vector(self, size: int) -> np.ndarray:
        """Return a random vector."""
        return self.rng.standard_normal(size).astype(np.float32)

    def model(self) -> onnx.ModelProto:
        """Return the model with the last result as its output."""
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.given)]
        results = [helper.make_tensor_value_info(self.value, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "chain", given, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    def _shape_of(self, value: str) -> Shape:
        found = self.model().graph.output[0].type.tensor_type.shape
        shape = tuple(extent.dim_value for extent in found.dim)
        if not shape or 0 in shape:
            raise Impossible(f"'{value}' has the shape {shape}")
        return shape


def _image(chain: Chain) -> tuple[int, int]:
    """Return batch and channels of an image."""
    if len(chain.shape) != 4:
        raise Impossible("no image")
    return chain.shape[0], chain.shape[1]


def _conv(size: int = 3, bias: bool = True, depthwise: bool = False, **attributes: object) -> Callable[[Chain], None]:
    def append(chain: Chain) -> None:
        channels = _image(chain)[1]
        group = channels if depthwise else int(attributes.get("group", 1))
        results = channels if depthwise else 8
        if channels % group:
            raise Impossible("groups")
        given = [chain.weight(results, channels // group, size, size)]
        if bias:
            given.append(chain.vector(results))
        chain.add("Conv", *given, **{"pads": [size // 2] * 4, **attributes, "group": group})

    return append


def _plain(operator: str, *more: np.ndarray, **attributes: object) -> Callable[[Chain], None]:
    return lambda chain: chain.add(operator, *more, **attributes) and None


def _pool(operator: str, **attributes: object) -> Callable[[Chain], None]:
    def append(chain: Chain) -> None:
        _image(chain)
        chain.add(operator, **attributes)

    return append


def _with_constant(operator: str, per_channel: bool, negative: bool = True) -> Callable[[Chain], None]:
    def append(chain: Chain) -> None:
        size = chain.shape[1] if len(chain.shape) > 1 else 1
        shape = (1, size, *[1] * (len(chain.shape) - 2)) if per_channel else ()
        numbers = chain.rng.normal(0, 1, shape) if negative else chain.rng.uniform(0.2, 2, shape)
        chain.add(operator, numbers.astype(np.float32))

    return append


def _residual(operator: str = "Add", product: bool = False) -> Callable[[Chain], None]:
    """Another path from the same value, joined with it."""

    def append(chain: Chain) -> None:
        before, channels = chain.value, _image(chain)[1]
        chain.add("Conv", chain.weight(channels, channels, 3, 3), chain.vector(channels), pads=[1] * 4)
        other = chain.value
        if product:
            chain.value = before
            chain.add("Conv", chain.weight(channels, channels, 1, 1), chain.vector(channels))
            before = chain.value
        chain.add(operator, inputs=[other, before], **({"axis": 1} if operator == "Concat" else {}))

    return append


def _squeeze_excite(chain: Chain) -> None:
    before, channels = chain.value, _image(chain)[1]
    chain.add("GlobalAveragePool")
    chain.add("Conv", chain.weight(channels, channels, 1, 1), chain.vector(channels))
    chain.add("Sigmoid")
    chain.add("Mul", inputs=[before, chain.value])


def _swish(chain: Chain) -> None:
    before = chain.value
    chain.add("Sigmoid")
    chain.add("Mul", inputs=[before, chain.value])


def _matmul(bias: bool) -> Callable[[Chain], None]:
    def append(chain: Chain) -> None:
        if len(chain.shape) < 2:
            raise Impossible("a vector")
        chain.add("MatMul", chain.weight(12, chain.shape[-1]).T)
        if bias:
            chain.add("Add", chain.vector(12))

    return append


def _gemm(transposed: bool) -> Callable[[Chain], None]:
    def append(chain: Chain) -> None:
        if len(chain.shape) != 2:
            chain.add("Flatten")
        weight = chain.weight(12, chain.shape[1])
        chain.add("Gemm", weight if transposed else weight.T, chain.vector(12), transB=int(transposed))

    return append


def _attention(chain: Chain) -> None:
    """Scores of a value with itself, and shares of it."""
    before, rank = chain.value, len(chain.shape)
    if rank < 3:
        raise Impossible("no matrices")
    order = [*range(rank - 2), rank - 1, rank - 2]
    turned = chain.add("Transpose", perm=order)
    scores = chain.add("MatMul", inputs=[before, turned])
    shares = chain.add("Softmax", inputs=[scores], axis=-1)
    chain.add("MatMul", inputs=[shares, before])


def _transpose(chain: Chain) -> None:
    order = list(range(len(chain.shape)))
    chain.rng.shuffle(order)
    chain.add("Transpose", perm=order)


def _reshape(chain: Chain) -> None:
    batch, *others = chain.shape
    chain.add("Reshape", np.array([batch, others[-1] if others else 1, -1], np.int64))


def _slice(chain: Chain) -> None:
    axis = int(chain.rng.integers(1, len(chain.shape)))
    numbers = (np.array([number], np.int64) for number in (0, max(1, chain.shape[axis] - 1), axis))
    chain.add("Slice", *numbers)


def _normalize(chain: Chain) -> None:
    channels = _image(chain)[1]
    numbers = [chain.vector(channels) for _ in range(3)]
    chain.add("BatchNormalization", *numbers, chain.rng.uniform(0.5, 2, channels).astype(np.float32))


def _layer_normalization(chain: Chain) -> None:
    chain.add("LayerNormalization", chain.vector(chain.shape[-1]), chain.vector(chain.shape[-1]), axis=-1)


def _prelu(chain: Chain) -> None:
    channels = _image(chain)[1]
    chain.add("PRelu", chain.rng.uniform(-0.3, 0.5, (channels, 1, 1)).astype(np.float32))


def _resize(mode: str) -> Callable[[Chain], None]:
    def append(chain: Chain) -> None:
        _image(chain)
        attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
        attributes |= {"nearest_mode": "floor"} if mode == "nearest" else {}
        chain.add("Resize", "", np.array([1, 1, 2, 2], np.float32), **attributes)

    return append


def _split(chain: Chain) -> None:
    _, channels = _image(chain)
    if channels % 2:
        raise Impossible("an odd number of channels")
    half = (np.array([number], np.int64) for number in (0, channels // 2, 1))
    rest = (np.array([number], np.int64) for number in (channels // 2, channels, 1))
    before = chain.value
    first = chain.add("Slice", *half)
    chain.value = before
    second = chain.add("Slice", *rest)
    chain.add("Concat", inputs=[second, first], axis=1)


PADDED = np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64)
OPERATORS: dict[str, Callable[[Chain], None]] = {
    "conv 3x3": _conv(),
    "conv 1x1": _conv(1),
    "conv 1x1 strided": _conv(1, strides=[2, 2]),
    "conv without bias": _conv(bias=False),
    "conv strided": _conv(strides=[2, 2]),
    "conv dilated": _conv(dilations=[2, 2], pads=[2, 2, 2, 2]),
    "conv unpadded": _conv(pads=[0, 0, 0, 0]),
    "conv padded at one side": _conv(pads=[0, 1, 2, 0]),
    "conv grouped": _conv(group=2),
    "conv depthwise": _conv(depthwise=True),
    "conv depthwise 5x5": _conv(5, depthwise=True),
    "matmul": _matmul(False),
    "matmul with bias": _matmul(True),
    "gemm": _gemm(False),
    "gemm transposed": _gemm(True),
    "attention": _attention,
    "residual": _residual(),
    "residual of products": _residual(product=True),
    "concat": _residual("Concat"),
    "concat of products": _residual("Concat", product=True),
    "product of paths": _residual("Mul"),
    "squeeze and excite": _squeeze_excite,
    "relu": _plain("Relu"),
    "relu6": _plain("Clip", np.array(0, np.float32), np.array(6, np.float32)),
    "clip": _plain("Clip", np.array(-0.5, np.float32), np.array(0.7, np.float32)),
    "leaky relu": _plain("LeakyRelu", alpha=0.1),
    "prelu": _prelu,
    "sigmoid": _plain("Sigmoid"),
    "tanh": _plain("Tanh"),
    "swish": _swish,
    "hard swish": _plain("HardSwish"),
    "gelu": _plain("Gelu"),
    "elu": _plain("Elu"),
    "abs": _plain("Abs"),
    "neg": _plain("Neg"),
    "max pool": _pool("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    "max pool padded": _pool("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "average pool": _pool("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    "average pool padded": _pool("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "average pool counting pads": _pool("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    "global average": _pool("GlobalAveragePool"),
    "global maximum": _pool("GlobalMaxPool"),
    "reduce mean": _plain("ReduceMean", np.array([-1], np.int64), keepdims=1),
    "reduce maximum": _plain("ReduceMax", np.array([-1], np.int64), keepdims=1),
    "reduce sum": _plain("ReduceSum", np.array([-1], np.int64), keepdims=1),
    "flatten": _plain("Flatten"),
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "shuffle": _split,
    "pad": lambda chain: _image(chain) and chain.add("Pad", PADDED) and None,
    "pad with a number": lambda chain: _image(chain) and chain.add("Pad", PADDED, np.array(0.7, np.float32)) and None,
    "resize": _resize("nearest"),
    "resize linear": _resize("linear"),
    "depth to space": _pool("DepthToSpace", blocksize=2),
    "add a number": _with_constant("Add", False),
    "add per channel": _with_constant("Add", True),
    "subtract per channel": _with_constant("Sub", True),
    "scale": _with_constant("Mul", False),
    "scale per channel": _with_constant("Mul", True),
    "scale per channel, positive": _with_constant("Mul", True, negative=False),
    "divide per channel": _with_constant("Div", True, negative=False),
    "batch normalization": _normalize,
    "layer normalization": _layer_normalization,
    "softmax": _plain("Softmax", axis=-1),
}
