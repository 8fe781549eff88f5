"""Small nets of several kinds with random weights, and the same nets in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, np.ndarray]
OPSET = 17


class _Net:
    """A graph that grows node by node."""

    def __init__(self, seed: int):
        self.random, self.nodes, self.weights = np.random.default_rng(seed), [], []

    def weight(self, *shape: int, scale: float | None = None) -> str:
        spread = scale if scale is not None else 1 / np.sqrt(np.prod(shape[1:]) or 1)
        return self.constant((spread * self.random.standard_normal(shape)).astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}_{name}", **attributes))
        return name

    def conv(self, x: str, filters: int, channels: int, size: int = 3, stride: int = 1, group: int = 1) -> str:
        weight = self.weight(filters, channels // group, size, size, scale=np.sqrt(2 * group / (channels * size**2)))
        bias = self.weight(filters, scale=0.1)
        pads = [size // 2] * 4
        return self.add("Conv", x, weight, bias, strides=[stride] * 2, pads=pads, group=group)

    def norm(self, x: str, width: int) -> str:
        ones = self.constant(1 + 0.1 * self.random.standard_normal(width).astype(np.float32))
        return self.add("LayerNormalization", x, ones, self.weight(width, scale=0.1), axis=-1)

    def model(self, output: str, **inputs: tuple[int, ...]) -> onnx.ModelProto:
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", given, [result], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


def residual(net: _Net) -> onnx.ModelProto:
    """A residual net of pictures, with a head of classes."""
    x = net.add("Relu", net.conv("x", 32, 3, 7, 2))
    for width, before in ((32, 32), (64, 32), (128, 64)):
        first = net.add("Relu", net.conv(x, width, before, 3, 2))
        x = net.add("Relu", net.add("Add", net.conv(first, width, width), net.conv(x, width, before, 1, 2)))
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model(net.add("Gemm", x, net.weight(100, 128), net.weight(100, scale=0.1), transB=1), x=(1, 3, 96, 96))


def mobile(net: _Net) -> onnx.ModelProto:
    """Convolutions by channel, gates and hard swish, as in nets for phones."""
    x = net.add("HardSwish", net.conv("x", 16, 3, 3, 2))
    for width, before in ((32, 16), (64, 32), (96, 64)):
        x = net.add("HardSwish", net.conv(x, width, before, 1))
        x = net.add("HardSwish", net.conv(x, width, width, 5, 2, width))
        gate = net.add("HardSigmoid", net.conv(net.add("GlobalAveragePool", x), width, width, 1))
        x = net.add("Mul", x, gate)
    return net.model(net.conv(x, 64, 96, 1), x=(1, 3, 96, 96))


def segmentation(net: _Net) -> onnx.ModelProto:
    """A net that goes down and up again, with transposed convolutions."""
    first = net.add("Relu", net.conv("x", 16, 3))
    second = net.add("Relu", net.conv(net.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 32, 16))
    up = net.add("ConvTranspose", second, net.weight(32, 16, 2, 2, scale=0.15), strides=[2, 2])
    joined = net.add("Relu", net.conv(net.add("Concat", up, first, axis=1), 16, 32))
    return net.model(net.add("Sigmoid", net.conv(joined, 4, 16, 1)), x=(1, 3, 64, 64))


def encoder(net: _Net) -> onnx.ModelProto:
    """Two layers of a transformer's encoder."""
    x, width, heads, length = "x", 192, 4, 64
    to_heads = net.constant(np.array([1, length, heads, width // heads], np.int64))
    flat = net.constant(np.array([1, length, width], np.int64))
    for _ in range(2):
        y = net.norm(x, width)
        q, k, v = (net.add("Reshape", net.add("MatMul", y, net.weight(width, width)), to_heads) for _ in range(3))
        q, v = (net.add("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, v))
        scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 3, 1]))
        scores = net.add("Mul", scores, net.constant(np.float32((width // heads) ** -0.5)))
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
        mixed = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), flat)
        x = net.add("Add", x, net.add("MatMul", mixed, net.weight(width, width)))
        y = net.add("MatMul", net.norm(x, width), net.weight(width, 4 * width))
        half = net.add("Mul", y, net.constant(np.float32(0.5)))
        erf = net.add("Erf", net.add("Mul", y, net.constant(np.float32(2**-0.5))))
        y = net.add("Mul", half, net.add("Add", erf, net.constant(np.float32(1))))
        x = net.add("Add", x, net.add("MatMul", y, net.weight(4 * width, width)))
    return net.model(net.norm(x, width), x=(1, length, width))


def perceptron(net: _Net) -> onnx.ModelProto:
    """Wide products, one after the other."""
    x = "x"
    for _ in range(4):
        x = net.add(
            "Relu", net.add("Gemm", x, net.weight(1024, 1024, scale=0.044), net.weight(1024, scale=0.1), transB=1)
        )
    return net.model(net.add("Softmax", net.add("MatMul", x, net.weight(1024, 64, scale=0.05)), axis=-1), x=(8, 1024))


KINDS: dict[str, Callable[[_Net], onnx.ModelProto]] = {
    "residual": residual, "mobile": mobile, "segmentation": segmentation, "encoder": encoder, "perceptron": perceptron,
}  # fmt: skip


def made(kind: str, folder: Path) -> tuple[Path, list[Feeds]]:
    """Write the net of a kind, and return its file and two inputs."""
    net = _Net(list(KINDS).index(kind))
    proto = KINDS[kind](net)
    path = folder / f"{kind}.onnx"
    onnx.save(proto, path)
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    return path, [{"x": net.random.standard_normal(shape).astype(np.float32)} for _ in range(2)]


def in_torch(path: Path, half: bool) -> Callable[[Feeds], np.ndarray]:
    """The same net in PyTorch on the GPU, node by node.

    Raises:
        RuntimeError: There is no PyTorch for this GPU, or an operator is not among those of the kinds.
    """
    import torch
    from torch.nn import functional

    if not torch.cuda.is_available():
        raise RuntimeError("torch has no GPU")
    graph = onnx.load(path).graph
    kind = torch.float16 if half else torch.float32
    held = {}
    for one in graph.initializer:
        tensor = torch.from_numpy(numpy_helper.to_array(one).copy()).cuda()
        held[one.name] = tensor.to(kind) if tensor.is_floating_point() else tensor

    def pool(x, a):
        return functional.max_pool2d(x, a["kernel_shape"], a.get("strides"))

    calls = {
        "Conv": lambda a, x, w, b=None: functional.conv2d(x, w, b, a["strides"], a["pads"][:2], 1, a["group"]),
        "ConvTranspose": lambda a, x, w: functional.conv_transpose2d(x, w, None, a["strides"]),
        "Gemm": lambda a, x, w, b: functional.linear(x, w, b), "MatMul": lambda a, x, y: x @ y,
        "Add": lambda a, x, y: x + y, "Mul": lambda a, x, y: x * y, "Relu": lambda a, x: x.relu(),
        "Sigmoid": lambda a, x: x.sigmoid(), "Erf": lambda a, x: x.erf(), "MaxPool": lambda a, x: pool(x, a),
        "HardSwish": lambda a, x: functional.hardswish(x), "Softmax": lambda a, x: x.softmax(a["axis"]),
        "HardSigmoid": lambda a, x: (0.2 * x + 0.5).clamp(0, 1), "Flatten": lambda a, x: x.flatten(1),
        "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True), "Concat": lambda a, *x: torch.cat(x, a["axis"]),
        "LayerNormalization": lambda a, x, w, b: functional.layer_norm(x, w.shape, w, b, 1e-5),
        "Reshape": lambda a, x, s: x.reshape(s.tolist()), "Transpose": lambda a, x: x.permute(a["perm"]),
    }  # fmt: skip
    if lacking := {node.op_type for node in graph.node} - calls.keys():
        raise RuntimeError(f"no call of torch for {', '.join(sorted(lacking))}")
    steps = [
        (calls[node.op_type], {each.name: helper.get_attribute_value(each) for each in node.attribute}, node)
        for node in graph.node
    ]

    @torch.inference_mode()
    def run(feeds: Feeds) -> np.ndarray:
        values = {**held, **{name: torch.from_numpy(array).cuda().to(kind) for name, array in feeds.items()}}
        for call, attributes, node in steps:
            values[node.output[0]] = call(attributes, *(values[name] for name in node.input))
        return values[graph.output[0].name].float().cpu().numpy()

    return run
