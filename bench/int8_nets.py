"""ResNet-50, BERT-base and MiniLM with random weights, for benchmarks where nothing may be downloaded.

    python bench/int8_nets.py FOLDER [resnet50 bert_base minilm]

Writes NAME.onnx and NAME.npz (one set of inputs). Weights are drawn with the deviations that training starts from; the
batch normalizations of ResNet-50 have the statistics of a few random images and are folded into its convolutions, so
that values stay in the range of a trained net's. Both are seeded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20  # Gelu
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks and width of each stage of ResNet-50
HEADS, VOCABULARY, LENGTH = 12, 30522, 128


class Graph:
    """Nodes and constants of a model that is being made."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray, name: str) -> str:
        """Add a constant; return its name."""
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Add a node of the given name; return the name of its result."""
        self.nodes.append(helper.make_node(operator, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def model(self, inputs: dict[str, tuple[int, list]], outputs: dict[str, list]) -> onnx.ModelProto:
        """Return the model; `outputs` maps names of results to shapes."""
        given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, "net", given, results, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        onnx.checker.check_model(made)
        return made


def images(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Return `count` random images for ResNet-50, float32 [1, 3, 224, 224]: smooth shapes under noise."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        coarse = rng.standard_normal((3, 7, 7)).repeat(32, 1).repeat(32, 2)
        made.append({"x": (coarse + 0.5 * rng.standard_normal((3, 224, 224)))[None].astype(np.float32)})
    return made


def sentences(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Return `count` random token sequences, int64 [1, 128], padded behind 64 to 128 tokens."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        mask = (np.arange(LENGTH) < rng.integers(LENGTH // 2, LENGTH + 1)).astype(np.int64)
        made.append({"input_ids": rng.integers(0, VOCABULARY, (1, LENGTH)), "attention_mask": mask[None]})
    return made


def resnet50() -> onnx.ModelProto:
    """Return ResNet-50 with folded batch normalizations."""
    graph = Graph(0)
    batch = np.concatenate([feeds["x"] for feeds in images(4, 100)])

    def convolution(name: str, value: tuple[str, np.ndarray], channels: int, size: int, stride: int, gain: float):
        result, array = value
        shape = (channels, array.shape[1], size, size)
        weight = graph.rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        attributes = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [size // 2] * 4}
        computed = _run("Conv", [array, weight], attributes)
        mean, deviation = computed.mean((0, 2, 3)), computed.std((0, 2, 3)) + 1e-5
        slope = (gain * graph.rng.uniform(0.5, 1.5, channels) / deviation).astype(np.float32)
        bias = (graph.rng.normal(0, 0.2, channels) - mean * slope).astype(np.float32)
        weight = graph.constant(weight * slope[:, None, None, None], f"{name}.weight")
        made = graph.add("Conv", [result, weight, graph.constant(bias, f"{name}.bias")], name, **attributes)
        return made, computed * slope[:, None, None] + bias[:, None, None]

    def relu(name: str, value: tuple[str, np.ndarray]):
        return graph.add("Relu", [value[0]], name), np.maximum(value[1], 0)

    value = relu("relu", convolution("stem", ("x", batch), 64, 7, 2, 1))
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    value = graph.add("MaxPool", [value[0]], "pool", **window), _run("MaxPool", [value[1]], window)
    for stage, (blocks, width) in enumerate(STAGES):
        for block in range(blocks):
            name, stride = f"s{stage}.b{block}", 2 if stage and not block else 1
            inner = relu(f"{name}.relu1", convolution(f"{name}.conv1", value, width, 1, 1, 1))
            inner = relu(f"{name}.relu2", convolution(f"{name}.conv2", inner, width, 3, stride, 1))
            inner = convolution(f"{name}.conv3", inner, 4 * width, 1, 1, 0.5)
            if not block:
                value = convolution(f"{name}.shortcut", value, 4 * width, 1, stride, 1)
            total = graph.add("Add", [inner[0], value[0]], f"{name}.add"), inner[1] + value[1]
            value = relu(f"{name}.relu3", total)
    pooled = graph.add("GlobalAveragePool", [value[0]], "average")
    flat = graph.add("Flatten", [pooled], "flatten")
    weight = graph.constant(graph.rng.normal(0, 0.02, (1000, 2048)).astype(np.float32), "classifier.weight")
    bias = graph.constant(np.zeros(1000, np.float32), "classifier.bias")
    logits = graph.add("Gemm", [flat, weight, bias], "classifier", transB=1)
    return graph.model({"x": (TensorProto.FLOAT, [1, 3, 224, 224])}, {logits: [1, 1000]})


def encoder(layers: int, hidden: int) -> onnx.ModelProto:
    """Return an encoder of texts as PyTorch's exporter writes it: MatMul and Add, attention spelled out, Gelu.

    Args:
        layers: The number of its layers: 12 for BERT-base, 6 for MiniLM.
        hidden: The numbers of a token between layers: 768, and 384.
    """
    graph = Graph(2)

    def linear(name: str, value: str, rows: int, columns: int) -> str:
        weight = graph.constant(graph.rng.normal(0, 0.02, (rows, columns)).astype(np.float32), f"{name}.weight")
        bias = graph.constant(graph.rng.normal(0, 0.02, columns).astype(np.float32), f"{name}.bias")
        return graph.add("Add", [graph.add("MatMul", [value, weight], name), bias], f"{name}.add")

    def normalized(name: str, value: str) -> str:
        scale = graph.constant(graph.rng.uniform(0.5, 1.5, hidden).astype(np.float32), f"{name}.scale")
        bias = graph.constant(graph.rng.normal(0, 0.1, hidden).astype(np.float32), f"{name}.bias")
        return graph.add("LayerNormalization", [value, scale, bias], name, axis=-1, epsilon=1e-12)

    def split(name: str, value: str, order: list[int]) -> str:
        parts = graph.add("Reshape", [value, heads], f"{name}.split")
        return graph.add("Transpose", [parts], f"{name}.transpose", perm=order)

    words = graph.constant(graph.rng.normal(0, 0.02, (VOCABULARY, hidden)).astype(np.float32), "words")
    places = graph.constant(graph.rng.normal(0, 0.02, (1, LENGTH, hidden)).astype(np.float32), "places")
    heads = graph.constant(np.array([1, LENGTH, HEADS, hidden // HEADS], np.int64), "heads")
    whole = graph.constant(np.array([1, LENGTH, hidden], np.int64), "whole")
    root = graph.constant(np.array(np.sqrt(hidden // HEADS), np.float32), "root")
    axes, one = graph.constant(np.array([1, 2], np.int64), "axes"), graph.constant(np.array(1, np.float32), "one")
    lowest = graph.constant(np.array(-10000, np.float32), "lowest")
    visible = graph.add("Cast", [graph.add("Unsqueeze", ["attention_mask", axes], "mask")], "visible", to=1)
    bias = graph.add("Mul", [graph.add("Sub", [one, visible], "hidden_ones"), lowest], "mask_bias")
    value = graph.add("Add", [graph.add("Gather", [words, "input_ids"], "embedding"), places], "embedded")
    value = normalized("norm", value)
    for layer in range(layers):
        at = f"l{layer}"
        query, key, rows = (linear(f"{at}.{part}", value, hidden, hidden) for part in ("query", "key", "value"))
        query, rows = (split(f"{at}.{part}", each, [0, 2, 1, 3]) for part, each in (("query", query), ("value", rows)))
        scores = graph.add("MatMul", [query, split(f"{at}.key", key, [0, 2, 3, 1])], f"{at}.scores")
        scores = graph.add("Add", [graph.add("Div", [scores, root], f"{at}.scaled"), bias], f"{at}.masked")
        shares = graph.add("Softmax", [scores], f"{at}.shares", axis=-1)
        mixed = graph.add("MatMul", [shares, rows], f"{at}.mixed")
        mixed = graph.add("Reshape", [graph.add("Transpose", [mixed], f"{at}.join", perm=[0, 2, 1, 3]), whole], at)
        attended = graph.add("Add", [linear(f"{at}.output", mixed, hidden, hidden), value], f"{at}.residual1")
        value = normalized(f"{at}.norm1", attended)
        inner = graph.add("Gelu", [linear(f"{at}.up", value, hidden, 4 * hidden)], f"{at}.gelu")
        inner = linear(f"{at}.down", inner, 4 * hidden, hidden)
        value = normalized(f"{at}.norm2", graph.add("Add", [inner, value], f"{at}.residual2"))
    tokens = (TensorProto.INT64, [1, LENGTH])
    return graph.model({"input_ids": tokens, "attention_mask": tokens}, {value: [1, LENGTH, hidden]})


def bert_base() -> onnx.ModelProto:
    """Return BERT-base."""
    return encoder(12, 768)


def minilm() -> onnx.ModelProto:
    """Return MiniLM with six layers."""
    return encoder(6, 384)


NETS = {"resnet50": (resnet50, images), "bert_base": (bert_base, sentences), "minilm": (minilm, sentences)}


def _run(operator: str, arrays: list[np.ndarray], attributes: dict) -> np.ndarray:
    """Compute one operator with ONNX Runtime."""
    import onnxruntime

    names = [f"i{number}" for number in range(len(arrays))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in zip(names, arrays, strict=True)]
    graph = helper.make_graph([node], "one", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


def main() -> None:
    """Write the nets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("nets", nargs="*", default=list(NETS), metavar="NAME", help=", ".join(NETS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.nets:
        make, inputs = NETS[name]
        onnx.save(make(), options.folder / f"{name}.onnx")
        np.savez(options.folder / f"{name}.npz", **inputs(1, 1)[0])


if __name__ == "__main__":
    main()
