"""Decoders as ONNX Runtime's builder of models writes them: norms, grouped attention with a cache, 4-bit weights."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SIZE, HEADS, SHARED, HIDDEN, INNER, WORDS = 16, 4, 2, 64, 96, 50


class _Builder:
    def __init__(self, dtype, bits):
        self.nodes, self.weights, self._dtype, self._bits = [], [], dtype, bits
        self._rng = np.random.default_rng(0)

    def constant(self, name, array):
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, name, *shape):
        return self.constant(name, (self._rng.standard_normal(shape) * 0.1).astype(self._dtype))

    def node(self, op_type, inputs, outputs, name, domain="", **attributes):
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def product(self, x, name, inside, outside):
        if not self._bits:
            return self.node("MatMul", [x, self.random(f"{name}.weight", inside, outside)], [name], name)
        packed = self._rng.integers(0, 256, (outside, inside // 32, 16)).astype(np.uint8)
        scales = np.abs(self._rng.standard_normal((outside, inside // 32)) * 0.01).astype(self._dtype)
        inputs = [x, self.constant(f"{name}.packed", packed), self.constant(f"{name}.scales", scales)]
        attributes = {"K": inside, "N": outside, "bits": self._bits, "block_size": 32}
        return self.node("MatMulNBits", inputs, [name], name, "com.microsoft", **attributes)

    def norm(self, x, skip, name, last=False):
        inputs = [x, skip, self.random(f"{name}.weight", HIDDEN)]
        outputs = [name] if last else [name, "", "", f"{name}.sum"]
        self.node("SkipSimplifiedLayerNormalization", inputs, outputs, name, "com.microsoft", epsilon=1e-5)
        return name, f"{name}.sum"


def decoder(dtype=np.float32, bits=0, layers=2, opset=21):
    """A decoder whose caches grow; inputs and caches have open extents."""
    make, kind = _Builder(dtype, bits), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    value, whole = helper.make_tensor_value_info, TensorProto.INT64
    inputs = [value("input_ids", whole, ["batch", "length"]), value("attention_mask", whole, ["batch", "total"])]
    outputs = [value("logits", kind, ["batch", "length", WORDS])]
    angles = np.outer(np.arange(64), 1 / 100 ** (np.arange(SIZE // 2) / (SIZE // 2)))
    tables = [make.constant(name, f(angles).astype(dtype)) for name, f in (("cos", np.cos), ("sin", np.sin))]
    one, axis = make.constant("one", np.array([1])), make.constant("axis", np.array(1))
    make.node("ReduceSum", ["attention_mask", one], ["counts"], "counts", keepdims=0)
    make.node("Sub", ["counts", one], ["less"], "less")
    make.node("Cast", ["less"], ["lengths"], "lengths", to=TensorProto.INT32)
    make.node("Shape", ["attention_mask"], ["shape"], "shape")
    make.node("Gather", ["shape", axis], ["longest"], "longest")
    make.node("Cast", ["longest"], ["total_length"], "total_length", to=TensorProto.INT32)
    skip = make.node("Gather", [make.random("words", WORDS, HIDDEN), "input_ids"], ["embedded"], "embedded")
    x = make.node("SimplifiedLayerNormalization", [skip, make.random("first", HIDDEN)], ["norm"], "norm", epsilon=1e-5)
    for layer in range(layers):
        for which in ("key", "value"):
            inputs.append(value(f"past.{layer}.{which}", kind, ["batch", SHARED, "past", SIZE]))
            outputs.append(value(f"present.{layer}.{which}", kind, ["batch", SHARED, "total", SIZE]))
        parts = [
            make.product(x, f"{name}{layer}", HIDDEN, heads * SIZE)
            for name, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED))
        ]
        names = [f"{state}.{layer}.{which}" for state in ("past", "present") for which in ("key", "value")]
        attended = make.node(
            "GroupQueryAttention",
            [*parts, *names[:2], "lengths", "total_length", *tables],
            [f"attended{layer}", *names[2:]],
            f"attention{layer}",
            "com.microsoft",
            num_heads=HEADS,
            kv_num_heads=SHARED,
            do_rotary=1,
        )
        x, skip = make.norm(skip, make.product(attended, f"o{layer}", HEADS * SIZE, HIDDEN), f"middle{layer}")
        gate, up = (make.product(x, f"{name}{layer}", HIDDEN, INNER) for name in ("gate", "up"))
        make.node("Sigmoid", [gate], [f"sigmoid{layer}"], f"sigmoid{layer}")
        make.node("Mul", [gate, f"sigmoid{layer}"], [f"silu{layer}"], f"silu{layer}")
        inner = make.node("Mul", [f"silu{layer}", up], [f"inner{layer}"], f"inner{layer}")
        down = make.product(inner, f"down{layer}", INNER, HIDDEN)
        x, skip = make.norm(skip, down, f"after{layer}", layer == layers - 1)
    make.node("MatMul", [x, make.random("head", HIDDEN, WORDS)], ["logits"], "logits")
    graph = helper.make_graph(make.nodes, "decoder", inputs, outputs, make.weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def first_call(batch, length, dtype=np.float32, layers=2):
    """The inputs of a prompt: random words, and empty caches."""
    words = np.random.default_rng(1).integers(0, WORDS, (batch, length))
    empty = np.zeros((batch, SHARED, 0, SIZE), dtype)
    caches = {f"past.{layer}.{which}": empty for layer in range(layers) for which in ("key", "value")}
    return {"input_ids": words, "attention_mask": np.ones((batch, length), np.int64), **caches}


def next_call(given, results, layers=2):
    """The inputs of the next word, the likeliest one, with the caches of a call."""
    words = results[0][:, -1].argmax(-1)[:, None]
    mask = np.ones((len(words), given["attention_mask"].shape[1] + 1), np.int64)
    names = [f"past.{layer}.{which}" for layer in range(layers) for which in ("key", "value")]
    return {"input_ids": words, "attention_mask": mask, **dict(zip(names, results[1:]))}
