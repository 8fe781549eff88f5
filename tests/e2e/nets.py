"""Small nets with the structures of common ones, with seeded weights of the spread that training leaves."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NETS = ("mobilenet", "yolo", "vit", "efficientnet")
SIZE = 32


class Net:
    """Builds a net node by node; a method adds nodes and returns the name of their result."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.names = [], [], set()

    def add(self, kind, *inputs, name="", outputs=1, **attributes):
        name = name or f"{kind.lower()}_{sum(node.op_type == kind for node in self.nodes)}"
        made = [f"{name}_out{i or ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, made, name=name, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, content, dtype=np.float32):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(content, dtype), name))
        return name

    def weight(self, *shape):
        """Normal numbers by the number of inputs; channels differ in size, as after training with batch norms."""
        fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        spread = np.exp(self.rng.normal(0, 0.35, shape[0] if len(shape) == 4 else shape[-1]))
        spread = spread.reshape(-1, 1, 1, 1) if len(shape) == 4 else spread
        return self.constant(self.rng.standard_normal(shape) * np.sqrt(1.6 / fan_in) * spread)

    def conv(self, x, before, after, kernel=1, stride=1, groups=1, name=""):
        weight, bias = self.weight(after, before // groups, kernel, kernel), self.constant(np.zeros(after))
        pads = [kernel // 2] * 4
        return self.add("Conv", x, weight, bias, name=name, strides=[stride] * 2, pads=pads, group=groups)

    def silu(self, x):
        return self.add("Mul", x, self.add("Sigmoid", x))

    def relu6(self, x):
        return self.add("Clip", x, self.constant(0), self.constant(6))

    def dense(self, x, before, after, name=""):
        return self.add(
            "Add", self.add("MatMul", x, self.weight(before, after), name=name), self.constant(np.zeros(after))
        )

    def norm(self, x, width):
        """A layer norm as PyTorch exports it for old opsets."""
        mean = self.add("ReduceMean", x, self.constant([-1], np.int64))
        centered = self.add("Sub", x, mean)
        squares = self.add("Pow", centered, self.constant(2))
        variance = self.add("ReduceMean", squares, self.constant([-1], np.int64))
        deviation = self.add("Sqrt", self.add("Add", variance, self.constant(1e-5)))
        scaled = self.add("Mul", self.add("Div", centered, deviation), self.constant(np.ones(width)))
        return self.add("Add", scaled, self.constant(np.zeros(width)))

    def gelu(self, x):
        inner = self.add("Erf", self.add("Div", x, self.constant(np.sqrt(2))))
        return self.add("Mul", self.add("Mul", x, self.add("Add", inner, self.constant(1))), self.constant(0.5))

    def shaped(self, x, *shape):
        return self.add("Reshape", x, self.constant(shape, np.int64))

    def model(self, inputs=None, **outputs):
        """The net; `inputs` are names with type and shape, an image by default."""
        info = [
            helper.make_tensor_value_info(name, dtype, shape)
            for name, (dtype, shape) in ((outputs[key][0], outputs[key][1:]) for key in outputs)
        ]
        inputs = inputs or {"image": (TensorProto.FLOAT, [1, 3, SIZE, SIZE])}
        given = [helper.make_tensor_value_info(name, *typed) for name, typed in inputs.items()]
        graph = helper.make_graph(self.nodes, "net", given, info, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(model)
        return model


def mobilenet():
    """Depthwise blocks with residual additions, pooled, with a classifier and its Softmax."""
    net = Net(1)
    x = net.relu6(net.conv("image", 3, 8, 3, 2))
    for before, after, stride in ((8, 8, 1), (8, 16, 2), (16, 16, 1)):
        wide = net.relu6(net.conv(x, before, 4 * before))
        wide = net.relu6(net.conv(wide, 4 * before, 4 * before, 3, stride, 4 * before))
        narrow = net.conv(wide, 4 * before, after)
        x = net.add("Add", x, narrow) if before == after and stride == 1 else narrow
    x = net.add("GlobalAveragePool", net.relu6(net.conv(x, 16, 32)))
    x = net.add("Flatten", x)
    x = net.add("Gemm", x, net.weight(32, 10), net.constant(np.zeros(10)), name="classes")
    y = net.add("Softmax", x, axis=1)
    return net.model(y=(y, TensorProto.FLOAT, [1, 10]))


def yolo():
    """A backbone with a pyramid, pooling of several sizes, two heads, decoded boxes and NonMaxSuppression."""
    net = Net(2)
    x = net.silu(net.conv("image", 3, 8, 3, 2))
    early = x = net.silu(net.conv(x, 8, 16, 3, 2))
    left, right = net.add("Split", net.silu(net.conv(x, 16, 16)), outputs=2, axis=1, num_outputs=2)
    right = net.add("Add", right, net.silu(net.conv(right, 8, 8, 3)))
    x = net.silu(net.conv(net.add("Concat", left, right, axis=1), 16, 16))
    x = net.silu(net.conv(x, 16, 16, 3, 2))
    small = net.silu(net.conv(x, 16, 8))
    pooled = [small]
    for _ in range(3):
        pooled.append(net.add("MaxPool", pooled[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    deep = net.silu(net.conv(net.add("Concat", *pooled, axis=1), 32, 16))
    scales = net.constant([1, 1, 2, 2])
    up = net.add("Resize", deep, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric")
    fine = net.silu(net.conv(net.add("Concat", up, early, axis=1), 32, 16, 3))
    rows = []
    for features, cells in ((fine, 64), (deep, 16)):
        head = net.conv(net.silu(net.conv(features, 16, 16, 3)), 16, 7)
        rows.append(net.shaped(head, 1, 7, cells))
    table = net.add("Transpose", net.add("Concat", *rows, axis=2), perm=[0, 2, 1])
    at, split = net.constant(net.rng.uniform(4, 28, (1, 80, 4))), net.constant([4, 3], np.int64)
    moved, logits = net.add("Split", table, split, outputs=2, axis=2)
    boxes = net.add("Add", net.add("Mul", moved, net.constant(4)), at)
    scores = net.add("Transpose", net.add("Sigmoid", logits), perm=[0, 2, 1])
    chosen = net.add(
        "NonMaxSuppression", boxes, scores, net.constant([5], np.int64), net.constant([0.6]), net.constant([0.3])
    )
    return net.model(
        boxes=(boxes, TensorProto.FLOAT, [1, 80, 4]), scores=(scores, TensorProto.FLOAT, [1, 3, 80]),
        chosen=(chosen, TensorProto.INT64, ["found", 3]),
    )  # fmt: skip


def vit():
    """Patches, two encoder blocks with layer norms and attention of two heads, the mean, and a classifier."""
    net = Net(3)
    width, tokens, heads = 16, 16, 2
    x = net.add("Conv", "image", net.weight(width, 3, 8, 8), name="patches", strides=[8, 8])
    x = net.add("Transpose", net.shaped(x, 1, width, tokens), perm=[0, 2, 1])
    x = net.add("Add", x, net.constant(net.rng.normal(0, 0.2, (1, tokens, width))))
    for _ in range(2):
        normed = net.norm(x, width)
        parts = []
        for _ in range(3):
            part = net.shaped(net.dense(normed, width, width), 1, tokens, heads, width // heads)
            parts.append(net.add("Transpose", part, perm=[0, 2, 1, 3]))
        turned = net.add("Transpose", parts[1], perm=[0, 1, 3, 2])
        scores = net.add("Mul", net.add("MatMul", parts[0], turned), net.constant(1 / np.sqrt(width // heads)))
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=3), parts[2])
        joined = net.shaped(net.add("Transpose", mixed, perm=[0, 2, 1, 3]), 1, tokens, width)
        x = net.add("Add", x, net.dense(joined, width, width))
        hidden = net.gelu(net.dense(net.norm(x, width), width, 2 * width))
        x = net.add("Add", x, net.dense(hidden, 2 * width, width))
    mean = net.add("ReduceMean", net.norm(x, width), net.constant([1], np.int64), keepdims=0)
    y = net.add("Gemm", mean, net.weight(width, 10), net.constant(np.zeros(10)), name="classes")
    return net.model(y=(y, TensorProto.FLOAT, [1, 10]))


def efficientnet():
    """Depthwise blocks with squeeze and excitation."""
    net = Net(4)
    x = net.silu(net.conv("image", 3, 8, 3, 2))
    for before, after, kernel, stride in ((8, 8, 3, 1), (8, 16, 5, 2), (16, 16, 3, 1)):
        wide = net.silu(net.conv(x, before, 4 * before))
        wide = net.silu(net.conv(wide, 4 * before, 4 * before, kernel, stride, 4 * before))
        squeezed = net.silu(net.conv(net.add("GlobalAveragePool", wide), 4 * before, 4))
        wide = net.add("Mul", wide, net.add("Sigmoid", net.conv(squeezed, 4, 4 * before)))
        narrow = net.conv(wide, 4 * before, after)
        x = net.add("Add", x, narrow) if before == after and stride == 1 else narrow
    x = net.add("ReduceMean", net.silu(net.conv(x, 16, 32)), net.constant([2, 3], np.int64), keepdims=1)
    x = net.shaped(x, 1, 32)
    y = net.add("Gemm", x, net.weight(32, 10), net.constant(np.zeros(10)), name="classes")
    return net.model(y=(y, TensorProto.FLOAT, [1, 10]))


def net(name):
    """The model of that name."""
    return {"mobilenet": mobilenet, "yolo": yolo, "vit": vit, "efficientnet": efficientnet}[name]()


def images(count, seed=0):
    """Smooth pictures, as samples for calibration."""
    rng = np.random.default_rng(seed)
    coarse = rng.standard_normal((count, 3, SIZE // 4, SIZE // 4)).astype(np.float32)
    smooth = coarse.repeat(4, 2).repeat(4, 3) + rng.normal(0, 0.2, (count, 3, SIZE, SIZE)).astype(np.float32)
    return [{"image": picture[None]} for picture in smooth]
