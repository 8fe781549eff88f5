"""Make `n200.onnx`: 200 nodes of many operators with small weights, for the cost of starting and of a small model.

    python bench/n200.py [--output bench/n200.onnx]

Ten blocks of a residual pair of convolutions with batch norms, and attention over the positions of the image. The same
script always makes the same bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCKS, CHANNELS, SIDE = 10, 8, 4


class Writer:
    """Nodes and weights of one graph, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(200)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *extents: int, scale: float = 0.2, offset: float = 0.0) -> str:
        """A random float32 weight."""
        return self.constant((self.rng.standard_normal(extents) * scale + offset).astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        """An initializer."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: str, **attributes) -> str:
        """A node with one output."""
        name = f"n{len(self.nodes)}_{operator}"
        self.nodes.append(helper.make_node(operator, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def normalized_convolution(self, value: str) -> str:
        """Conv and BatchNormalization."""
        value = self.node("Conv", value, self.weight(CHANNELS, CHANNELS, 3, 3), pads=[1, 1, 1, 1])
        scale, bias, mean = (self.weight(CHANNELS, offset=offset) for offset in (1.0, 0.0, 0.0))
        variance = self.constant(np.full(CHANNELS, 0.7, np.float32))
        return self.node("BatchNormalization", value, scale, bias, mean, variance)

    def attention(self, value: str) -> str:
        """One head of attention over positions x channels, with the residual around it."""
        width = (self.weight(CHANNELS), self.weight(CHANNELS))
        normal = self.node("LayerNormalization", value, *width, axis=-1)
        query, key = (self.node("MatMul", normal, self.weight(CHANNELS, CHANNELS)) for _ in range(2))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=[0, 2, 1]))
        shares = self.node("Softmax", self.node("Mul", scores, self.constant(np.float32([0.35]))), axis=-1)
        return self.node("Add", self.node("MatMul", shares, normal), value)

    def block(self, image: str) -> str:
        """Twenty nodes: seven of convolution, four around the positions, nine of attention."""
        wide = self.node("Relu", self.normalized_convolution(image))
        image = self.node("Relu", self.node("Add", self.normalized_convolution(wide), image))
        positions = self.constant(np.array([1, CHANNELS, SIDE * SIDE], np.int64))
        rows = self.node("Transpose", self.node("Reshape", image, positions), perm=[0, 2, 1])
        columns = self.node("Transpose", self.attention(rows), perm=[0, 2, 1])
        return self.node("Reshape", columns, self.constant(np.array([1, CHANNELS, SIDE, SIDE], np.int64)))


def build() -> onnx.ModelProto:
    """The model."""
    writer, value = Writer(), "image"
    for _ in range(BLOCKS):
        value = writer.block(value)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, CHANNELS, SIDE, SIDE]) for name in ("image", value)
    ]
    graph = helper.make_graph(writer.nodes, "n200", ends[:1], ends[1:], writer.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("n200.onnx"))
    model = build()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, parser.parse_args().output)
    print(f"{len(model.graph.node)} nodes")


if __name__ == "__main__":
    main()
