"""Decoders of any size with random weights, written layer by layer, for benchmarks where nothing may be downloaded.

    python bench/decoder.py FOLDER [small | 1b]

Writes FOLDER/model.onnx with its weights in model.data, a layer at a time. The layers are those of Llama, in opset 21:
RMS normalization, attention whose queries share keys and values, and a gated product; there are no rotary embeddings,
and the mask is an input. Inputs are `input_ids` int64 [1, S], `mask` float32 [S, P + S], and for each layer `past_k_N`
and `past_v_N`, float32 [1, heads, P, width].

Weights are drawn as trained ones are distributed: a normal distribution times a factor per channel, and one number in a
thousand several times as large. The embedding is also the head. Both are seeded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET = 21


class Shape(NamedTuple):
    """Extents of a decoder."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def width(self) -> int:
        """Extent of a head."""
        return self.hidden // self.heads

    @property
    def weights(self) -> int:
        """Number of weights; the head is the embedding."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * self.width
        return self.layers * (attention + 3 * self.hidden * self.intermediate) + self.vocabulary * self.hidden


SHAPES = {"small": Shape(6, 512, 1536, 8, 4, 8192), "1b": Shape(22, 2048, 5632, 32, 4, 32000)}


class Writer:
    """A model whose weights go to a file as they are made."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.rng = folder, np.random.default_rng(seed)
        folder.mkdir(parents=True, exist_ok=True)
        self._data = (folder / "model.data").open("wb")
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def weight(self, name: str, rows: int, columns: int, gain: float) -> str:
        """Write a weight [rows, columns]; return its name."""
        array = self.rng.standard_normal((rows, columns), np.float32)
        array *= np.exp(self.rng.normal(0, 0.3, (1, columns))).astype(np.float32) * np.float32(gain)
        large = self.rng.integers(0, array.size, array.size // 1000)
        array.reshape(-1)[large] *= 5
        return self.array(name, array)

    def array(self, name: str, array: np.ndarray) -> str:
        """Write a constant; return its name."""
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        place = {"location": "model.data", "offset": self._data.tell(), "length": array.nbytes}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self._data.write(array.tobytes())
        self.constants.append(tensor)
        return name

    def small(self, name: str, numbers: object, kind: type) -> str:
        """Add a constant that is kept in the model itself; return its name."""
        self.constants.append(onnx.numpy_helper.from_array(np.array(numbers, kind), name))
        return name

    def add(self, operator: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Add a node; return the name of its result."""
        self.nodes.append(helper.make_node(operator, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def finish(self, inputs: dict[str, tuple[int, list]], output: str, shape: list) -> Path:
        """Write the model; return its path."""
        self._data.close()
        given = [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()]
        result = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "decoder", given, result, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        onnx.save(model, str(self.folder / "model.onnx"))
        return self.folder / "model.onnx"


def write(folder: Path, shape: Shape, seed: int = 0, tied: bool = True) -> Path:
    """Write a decoder; return the path of its model. If not `tied`, the head has a weight of its own."""
    w = Writer(folder, seed)
    inputs: dict[str, tuple[int, list]] = {
        "input_ids": (TensorProto.INT64, [1, "S"]),
        "mask": (TensorProto.FLOAT, ["S", "T"]),
    }
    for name, heads in (("q_shape", shape.heads), ("kv_shape", shape.kv_heads)):
        w.small(name, [1, -1, heads, shape.width], np.int64)
    w.small("flat_shape", [1, -1, shape.hidden], np.int64)
    w.small("epsilon", 1e-5, np.float32)
    w.small("two", 2, np.float32)
    w.small("last", [-1], np.int64)
    w.small("scale", shape.width**-0.5, np.float32)
    w.small("repeats", [1, 1, shape.heads // shape.kv_heads, 1, 1], np.int64)
    w.small("second", [2], np.int64)
    w.small("heads_shape", [1, shape.heads, -1, shape.width], np.int64)
    gain = shape.hidden**-0.5

    def norm(name: str, value: str) -> str:
        square = w.add("Pow", [value, "two"], f"{name}.square")
        mean = w.add("ReduceMean", [square, "last"], f"{name}.mean", keepdims=1)
        root = w.add("Sqrt", [w.add("Add", [mean, "epsilon"], f"{name}.add")], f"{name}.root")
        factors = np.exp(w.rng.normal(0, 0.2, shape.hidden)).astype(np.float32)
        return w.add("Mul", [w.add("Div", [value, root], f"{name}.div"), w.array(f"{name}.weight", factors)], name)

    def linear(name: str, value: str, rows: int, columns: int, scale: float = 1.0) -> str:
        return w.add("MatMul", [value, w.weight(f"{name}.weight", rows, columns, scale * rows**-0.5)], name)

    def heads(name: str, value: str, kind: str) -> str:
        split = w.add("Reshape", [value, kind], f"{name}.split")
        return w.add("Transpose", [split], f"{name}.heads", perm=[0, 2, 1, 3])

    def grown(name: str, value: str, past: str) -> str:
        inputs[past] = (TensorProto.FLOAT, [1, shape.kv_heads, "P", shape.width])
        whole = w.add("Concat", [past, value], f"{name}.whole", axis=2)
        spread = w.add("Unsqueeze", [whole, "second"], f"{name}.spread")
        return w.add("Reshape", [w.add("Expand", [spread, "repeats"], f"{name}.expand"), "heads_shape"], f"{name}.all")

    table = w.weight("embedding", shape.vocabulary, shape.hidden, 1.0)
    hidden = w.add("Gather", [table, "input_ids"], "embed")
    narrow = shape.kv_heads * shape.width
    for layer in range(shape.layers):
        n = f"l{layer}"
        x = norm(f"{n}.norm1", hidden)
        q = heads(f"{n}.q", linear(f"{n}.q", x, shape.hidden, shape.hidden), "q_shape")
        k = heads(f"{n}.k", linear(f"{n}.k", x, shape.hidden, narrow), "kv_shape")
        v = heads(f"{n}.v", linear(f"{n}.v", x, shape.hidden, narrow), "kv_shape")
        k, v = grown(f"{n}.k", k, f"past_k_{layer}"), grown(f"{n}.v", v, f"past_v_{layer}")
        turned = w.add("Transpose", [k], f"{n}.turned", perm=[0, 1, 3, 2])
        scores = w.add("Mul", [w.add("MatMul", [q, turned], f"{n}.scores"), "scale"], f"{n}.scaled")
        shares = w.add("Softmax", [w.add("Add", [scores, "mask"], f"{n}.masked")], f"{n}.shares", axis=-1)
        mixed = w.add("Transpose", [w.add("MatMul", [shares, v], f"{n}.mixed")], f"{n}.back", perm=[0, 2, 1, 3])
        flat = w.add("Reshape", [mixed, "flat_shape"], f"{n}.flat")
        hidden = w.add("Add", [hidden, linear(f"{n}.o", flat, shape.hidden, shape.hidden)], f"{n}.add1")
        x = norm(f"{n}.norm2", hidden)
        gate = linear(f"{n}.gate", x, shape.hidden, shape.intermediate)
        up = linear(f"{n}.up", x, shape.hidden, shape.intermediate)
        silu = w.add("Mul", [gate, w.add("Sigmoid", [gate], f"{n}.sigmoid")], f"{n}.silu")
        product = w.add("Mul", [silu, up], f"{n}.product")
        down = linear(f"{n}.down", product, shape.intermediate, shape.hidden)
        hidden = w.add("Add", [hidden, down], f"{n}.add2")
    scaled = w.add("Mul", [norm("norm", hidden), w.small("head.scale", 4 * gain, np.float32)], "head.scaled")
    if tied:
        head = w.add("Transpose", [table], "head.turned", perm=[1, 0])
    else:
        head = w.weight("head.weight", shape.hidden, shape.vocabulary, 1.0)
    logits = w.add("MatMul", [scaled, head], "head")
    return w.finish(inputs, logits, [1, "S", shape.vocabulary])


def feeds(shape: Shape, tokens: int, past: int, seed: int) -> dict[str, np.ndarray]:
    """Return random inputs: `tokens` new tokens behind `past` known ones."""
    rng = np.random.default_rng(seed)
    allowed = np.tril(np.ones((tokens, past + tokens), bool), past)
    found = {
        "input_ids": rng.integers(0, shape.vocabulary, (1, tokens)),
        "mask": np.where(allowed, 0, -1e4).astype(np.float32),
    }
    for layer in range(shape.layers):
        for part in ("k", "v"):
            size = (1, shape.kv_heads, past, shape.width)
            found[f"past_{part}_{layer}"] = rng.standard_normal(size, np.float32)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("shape", choices=SHAPES, nargs="?", default="small")
    given = parser.parse_args()
    print(write(given.folder, SHAPES[given.shape]), f"{SHAPES[given.shape].weights:,} weights")
