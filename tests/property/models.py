"""Random small models: several kinds of operators, shared weights, values with many readers, bodies that capture."""

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

SHAPE = [2, 4, 4]
FLOAT, HALF, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16


class Builder:
    """Grows one graph out of choices; every value is float32[2,4,4], and none grows much, so that errors stay small."""

    def __init__(self, draw):
        self.draw = draw
        self.nodes, self.weights, self.values = [], {}, ["x0", "x1"]
        self.names = 0
        self.casts = {}

    def fresh(self, stem):
        self.names += 1
        return f"{stem}{self.names}"

    def value(self):
        return self.draw(st.sampled_from(self.values))

    def node(self, op_type, *inputs, **attributes):
        output = self.fresh("v")
        name = "" if self.draw(st.integers(0, 5)) == 0 else f"{op_type.lower()}_{self.names}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name, **attributes))
        return output

    def weight(self, *shape, dtype=np.float32):
        """One of a few, so that some are shared."""
        name = f"w{len(shape)}_{self.draw(st.integers(0, 2))}_{np.dtype(dtype).name}"
        values = np.random.default_rng(len(self.weights)).uniform(-0.5, 0.5, shape)
        self.weights.setdefault(name, numpy_helper.from_array(values.astype(dtype), name))
        return name

    def constant(self, array, stem="k"):
        name = self.fresh(stem)
        self.weights[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def cast(self, value, to):
        if (value, to) not in self.casts:
            self.casts[value, to] = self.node("Cast", value, to=to)
        return self.casts[value, to]

    def step(self, kinds):
        """Add one operator, or a few that belong together, and return what it computes."""
        return getattr(self, f"_{self.draw(st.sampled_from(kinds))}")()

    def _unary(self):
        op_type = self.draw(st.sampled_from(["Relu", "Tanh", "Sigmoid", "Neg", "Identity", "Celu"]))
        return self.node(op_type, self.value())

    def _binary(self):
        one, other = (self.node("Tanh", self.value()) for _ in range(2))
        return self.node(self.draw(st.sampled_from(["Add", "Sub", "Mul", "Max"])), one, other)

    def _matmul(self):
        return self.node("MatMul", self.value(), self.weight(4, 4))

    def _product(self):
        return self.node("MatMul", self.node("Softmax", self.value()), self.value())

    def _conv(self):
        return self.node("Conv", self.value(), self.weight(4, 4, 1))

    def _bias(self):
        return self.node("Add", self.value(), self.weight(4))

    def _norm(self):
        return self.node("LayerNormalization", self.value(), self.weight(4), epsilon=1.0)

    def _high(self):
        """An operator that stays in float32."""
        axes = self.constant(np.array([2], np.int64))
        bounded = self.node("Tanh", self.value())
        return self.node("Add", self.value(), self.node("ReduceProd", bounded, axes, keepdims=1))

    def _reshape(self):
        """Through shape arithmetic."""
        value = self.value()
        shape = self.node("Shape", self.value())
        flat = self.node("Reshape", value, self.constant(np.array([-1], np.int64)))
        return self.node("Reshape", flat, shape)

    def _transpose(self):
        return self.node("Transpose", self.value(), perm=[0, 2, 1])

    def _there_and_back(self):
        """Casts that the model has already."""
        return self.cast(self.cast(self.value(), self.draw(st.sampled_from([HALF, BFLOAT16]))), FLOAT)

    def _quantized(self):
        scale, zero = self.constant(np.float32(0.02)), self.constant(np.int8(0))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", self.value(), scale, zero), scale, zero)

    def _where(self):
        return self.node("Where", self.node("Greater", "x0", "x1"), self.value(), self.value())

    def _fill(self):
        """One value all over."""
        value = helper.make_tensor("value", FLOAT, [1], [0.25])
        return self.node("ConstantOfShape", self.node("Shape", self.value()), value=value)

    def _whole(self):
        """Floats made of whole numbers."""
        return self.node("Cast", self.node("Greater", self.value(), "x1"), to=FLOAT)

    def _eye(self):
        """Ones and zeros of which only the shape comes from somewhere."""
        rows = self.node("Reshape", self.node("Tanh", self.value()), self.constant(np.array([8, 4], np.int64)))
        ones = self.node("EyeLike", rows, dtype=FLOAT)
        return self.node("Reshape", ones, self.constant(np.array(SHAPE, np.int64)))

    def _dead(self):
        self.node("Relu", self.value())
        return self.value()

    def body(self, name, inputs, first=()):
        """A graph that computes one value from what it is given and what it captures."""
        inner = Builder(self.draw)
        inner.values = self.values + [value.name for value in inputs if value.name.startswith("c")]
        inner.weights, inner.names = self.weights, self.names + 1000
        result = inner.node("Tanh", inner.step(["unary", "binary", "matmul", "product", "bias", "high"]))
        self.names = inner.names
        outputs = [*first, helper.make_tensor_value_info(result, FLOAT, SHAPE)]
        passed_on = [helper.make_node("Identity", ["go"], ["on"])] if first else []
        return helper.make_graph(passed_on + inner.nodes, name, inputs, outputs)

    def _if(self):
        return self.node("If", "flag", then_branch=self.body("yes", []), else_branch=self.body("no", []))

    def _loop(self):
        go, on = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "on"))
        inputs = [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            go,
            helper.make_tensor_value_info(carried := self.fresh("c"), FLOAT, SHAPE),
        ]
        for value in (*inputs, on):
            value.name = value.name if value.name == carried else f"{value.name}_{carried}"
        body = self.body(f"body_{carried}", inputs, [on])
        body.node[0].input[0], body.node[0].output[0] = go.name, on.name
        return self.node("Loop", self.constant(np.int64(2)), self.constant(np.bool_(True)), self.value(), body=body)


PLAIN = (
    "unary", "binary", "matmul", "product", "conv", "bias", "norm", "high", "reshape", "transpose", "there_and_back",
    "quantized", "where", "dead", "fill", "whole", "eye",
)  # fmt: skip


@st.composite
def models(draw, kinds=(*PLAIN, "if", "loop")):
    """Models of one to nine steps."""
    builder = Builder(draw)
    for _ in range(draw(st.integers(1, 9))):
        builder.values.append(builder.step(kinds))
    results = draw(st.lists(st.sampled_from(builder.values[2:]), min_size=1, max_size=3, unique=True))
    inputs = [helper.make_tensor_value_info(name, FLOAT, SHAPE) for name in ("x0", "x1")]
    inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    outputs = []
    for index, name in enumerate(results):
        if name in ("x0", "x1"):
            continue
        output = f"x{index}_out"  # a state that comes back as x0, or x1
        builder.nodes.append(helper.make_node("Identity", [name], [output], f"out_{index}"))
        outputs.append(helper.make_tensor_value_info(output, FLOAT, SHAPE))
    if not outputs:
        builder.nodes.append(helper.make_node("Relu", ["x0"], ["y"], "out"))
        outputs.append(helper.make_tensor_value_info("y", FLOAT, SHAPE))
    graph = helper.make_graph(builder.nodes, "random", inputs, outputs, list(builder.weights.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
