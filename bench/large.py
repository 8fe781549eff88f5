"""Language models of billions of weights: memory, CPU seconds and wall time of a compilation beside a floor.

    python bench/large.py make FOLDER [--size 300m | 1b | 3b | 8b] [--float16]
    python bench/large.py compile FOLDER OUT [--backend cpu-int8:weights=int4,kernel=nbits] [--peer] [--keep]

`make` writes the folder of a Llama as onnxruntime-genai's builder exports it: packed queries, keys and values,
GroupQueryAttention with its own rotary embedding, SimplifiedLayerNormalization and SkipSimplifiedLayerNormalization, a
head of its own, weights in `model.onnx.data`, `genai_config.json` and a tokenizer of words. Weights are random numbers
of a normal distribution, with one in a thousand several times as large; a block of 4 Mi of them is made once, and every
weight is made of pieces of it at random places, so that all bytes are written and no file is sparse.

`compile` runs the command line in a process of its own. Anonymous memory (`RssAnon`) of that process and of all its
children, summed, is sampled every 20 milliseconds; CPU seconds include the children. `floor` reads all bytes of the
source and writes as many as the result has, with the page cache of both files dropped before, as far as the system does
that for `posix_fadvise`; the same is done before compiling. `--peer` also runs ONNX Runtime's MatMulNBitsQuantizer (its
default algorithm, blocks of 32), which holds the model in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from decoder import Shape
from measure import table
from onnx import TensorProto, helper, numpy_helper

BLOCK = 1 << 22  # random numbers, of which all weights are made
CHUNK = 1 << 24  # bytes
CONTEXT = 2048
MICROSOFT = "com.microsoft"
WORDS = ["the", "a", "model", "of", "language", "reads", "words", "and", "writes", "more", "until", "it", "stops"]


SHAPES = {
    "30m": Shape(4, 384, 1024, 6, 2, 16384),
    "300m": Shape(16, 1024, 2816, 16, 8, 32000),
    "1b": Shape(16, 2048, 8192, 32, 8, 65536),
    "3b": Shape(28, 3072, 8192, 24, 8, 128256),
    "8b": Shape(32, 4096, 14336, 32, 8, 128256),
}


class Writer:
    """A model whose weights go to a file as they are made."""

    def __init__(self, folder: Path, dtype: type[np.generic], seed: int = 0):
        self.random, self.dtype, self.folder = np.random.default_rng(seed), np.dtype(dtype), folder
        self.kind = TensorProto.FLOAT16 if self.dtype == np.float16 else TensorProto.FLOAT
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.count = 0
        self._data = (folder / "model.onnx.data").open("wb")
        block = self.random.standard_normal(BLOCK, np.float32)
        block[self.random.integers(0, BLOCK, BLOCK // 1000)] *= 5
        self._block = block

    def op(self, operator: str, inputs: list[str], outputs: list[str] | str, domain: str = "", **settings) -> str:
        """Add a node; return its first output."""
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(operator, inputs, outputs, outputs[0], domain=domain, **settings))
        return outputs[0]

    def integers(self, value) -> str:
        """Add a constant of integers."""
        name = f"/constants/{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    def stored(self, name: str, array: np.ndarray) -> str:
        """Write a small weight as it is given."""
        return self._store(name, array.shape, [array.astype(self.dtype)])

    def weight(self, name: str, *shape: int) -> str:
        """Write a random weight, with numbers of a size that keeps the size of what it reads."""
        self.count += shape[0] * shape[1]
        return self._store(name, shape, self._pieces(shape[0] * shape[1], 1 / np.sqrt(shape[0])))

    def _pieces(self, left: int, gain: float) -> Iterator[np.ndarray]:
        scaled = (self._block * np.float32(gain)).astype(self.dtype)
        while left:
            begin = int(self.random.integers(0, BLOCK // 2))
            piece = scaled[begin : begin + left]
            left -= len(piece)
            yield piece

    def _store(self, name: str, shape: tuple[int, ...], pieces) -> str:
        self._data.write(bytes(-self._data.tell() % 4096))
        begin = self._data.tell()
        for piece in pieces:
            self._data.write(np.ascontiguousarray(piece).data)
        tensor = onnx.TensorProto(name=name, dims=shape, data_type=self.kind, data_location=TensorProto.EXTERNAL)
        places = {"location": "model.onnx.data", "offset": begin, "length": self._data.tell() - begin}
        for key, value in places.items():
            tensor.external_data.add(key=key, value=str(value))
        self.constants.append(tensor)
        return name

    def save(self, inputs: list, outputs: list) -> None:
        """Write the model."""
        self._data.close()
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), self.folder / "model.onnx")


def make(folder: Path, shape: Shape, dtype: type[np.generic]) -> int:
    """Write the folder of a decoder; return the number of its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    net = Writer(folder, dtype)
    lengths = net.op("ReduceSum", ["attention_mask", net.integers([1])], "/mask/lengths", keepdims=0)
    ends = net.op("Cast", [net.op("Sub", [lengths, net.integers([1])], "/mask/ends")], "/mask/ends32", to=6)
    total = net.op("Gather", [net.op("Shape", ["attention_mask"], "/mask/shape"), net.integers(1)], "/mask/total")
    total = net.op("Cast", [total], "/mask/total32", to=6)
    angles = np.outer(np.arange(CONTEXT), 500000.0 ** (-np.arange(0, shape.width, 2) / shape.width))
    turns = [net.stored("cos_cache", np.cos(angles)), net.stored("sin_cache", np.sin(angles))]
    table = net.weight("model.embed_tokens.weight", shape.vocabulary, shape.hidden)
    residual = net.op("Gather", [table, "input_ids"], "/model/embed_tokens/Gather/output_0")
    normed = _normalized(net, "model.layers.0.input_layernorm", shape, residual)
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        packed = (shape.heads + 2 * shape.kv_heads) * shape.width
        queries = _product(net, f"{at}.attn.qkv_proj", normed, shape.hidden, packed)
        past = [f"past_key_values.{layer}.{name}" for name in ("key", "value")]
        attention = net.op(
            "GroupQueryAttention", [queries, "", "", *past, ends, total, *turns],
            [f"/{at}/attention", f"present.{layer}.key", f"present.{layer}.value"], MICROSOFT,
            num_heads=shape.heads, kv_num_heads=shape.kv_heads, scale=shape.width**-0.5, do_rotary=1,
            local_window_size=-1,
        )  # fmt: skip
        added = _product(net, f"{at}.attn.o_proj", attention, shape.hidden, shape.hidden)
        normed, residual = _added(net, f"{at}.post_attention_layernorm", shape, residual, added)
        gate = _product(net, f"{at}.mlp.gate_proj", normed, shape.hidden, shape.intermediate)
        up = _product(net, f"{at}.mlp.up_proj", normed, shape.hidden, shape.intermediate)
        swish = net.op("Mul", [gate, net.op("Sigmoid", [gate], f"/{at}/sigmoid")], f"/{at}/swish")
        gated = net.op("Mul", [swish, up], f"/{at}/gated")
        added = _product(net, f"{at}.mlp.down_proj", gated, shape.intermediate, shape.hidden)
        following = f"model.layers.{layer + 1}." + ("input" if layer + 1 < shape.layers else "final_norm")
        normed, residual = _added(net, f"{following}_layernorm", shape, residual, added)
    head = net.weight("lm_head.MatMul.weight", shape.hidden, shape.vocabulary)
    net.op("MatMul", [normed, head], "logits")

    def port(name, kind, *extents):
        return helper.make_tensor_value_info(name, kind, ["batch_size", *extents])

    def caches(side, length):
        names = [f"{side}.{layer}.{name}" for layer in range(shape.layers) for name in ("key", "value")]
        return [port(name, net.kind, shape.kv_heads, length, shape.width) for name in names]

    inputs = [
        port("input_ids", TensorProto.INT64, "sequence_length"),
        port("attention_mask", TensorProto.INT64, "total_sequence_length"),
        *caches("past_key_values", "past_sequence_length"),
    ]
    net.save(
        inputs,
        [port("logits", net.kind, "sequence_length", shape.vocabulary), *caches("present", "total_sequence_length")],
    )
    _write_config(folder, shape)
    _write_tokenizer(folder)
    return net.count


def _product(net: Writer, name: str, value: str, rows: int, columns: int) -> str:
    return net.op("MatMul", [value, net.weight(f"{name}.MatMul.weight", rows, columns)], f"/{name}/MatMul/output_0")


def _normalized(net: Writer, name: str, shape: Shape, value: str) -> str:
    weight = net.stored(f"{name}.weight", np.ones(shape.hidden))
    settings = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
    return net.op("SimplifiedLayerNormalization", [value, weight], f"/{name}/output_0", **settings)


def _added(net: Writer, name: str, shape: Shape, residual: str, added: str) -> tuple[str, str]:
    weight = net.stored(f"{name}.weight", np.ones(shape.hidden))
    outputs = [f"/{name}/output_0", "", "", f"/{name}/output_3"]
    net.op("SkipSimplifiedLayerNormalization", [residual, added, weight], outputs, MICROSOFT, epsilon=1e-5)
    return outputs[0], outputs[3]


def _write_config(folder: Path, shape: Shape) -> None:
    caches = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    filled = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx", "head_size": shape.width, "hidden_size": shape.hidden,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **caches},
        "outputs": {"logits": "logits", **filled},
        "num_attention_heads": shape.heads, "num_hidden_layers": shape.layers, "num_key_value_heads": shape.kv_heads,
    }  # fmt: skip
    model = {
        "type": "llama", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "context_length": CONTEXT,
        "vocab_size": shape.vocabulary, "decoder": decoder,
    }  # fmt: skip
    search = {"do_sample": False, "max_length": CONTEXT, "past_present_share_buffer": False}
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": search}, indent=4))


def _write_tokenizer(folder: Path) -> None:
    words = {"<unk>": 0, **{word: number for number, word in enumerate(dict.fromkeys(WORDS), start=3)}}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}'
    )
    (folder / "prompts.txt").write_text("\n".join(" ".join(WORDS[start:]) for start in range(4)) + "\n")


def bytes_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def forget(folder: Path) -> None:
    """Ask the system to drop the page cache of a folder's files."""
    for file in filter(Path.is_file, folder.rglob("*")):
        with file.open("rb") as opened:
            os.fdatasync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def floor(source: Path, size: int, scratch: Path) -> float:
    """Return the seconds of reading a folder and writing `size` bytes."""
    forget(source)
    begin = time.perf_counter()
    for file in filter(Path.is_file, sorted(source.rglob("*"))):
        with file.open("rb", buffering=0) as opened:
            while opened.read(CHUNK):
                pass
    block = os.urandom(CHUNK)
    with scratch.open("wb", buffering=0) as opened:
        for start in range(0, size, CHUNK):
            opened.write(block[: size - start])
        os.fsync(opened.fileno())
    seconds = time.perf_counter() - begin
    scratch.unlink()
    return seconds


def _family(pid: int) -> list[int]:
    """Return a process and all below it."""
    found, new = [], [pid]
    while new:
        found += new
        below = []
        for one in new:
            for task in Path(f"/proc/{one}/task").glob("*/children"):
                try:
                    below += [int(number) for number in task.read_text().split()]
                except OSError:  # the thread has ended
                    continue
        new = below
    return found


def _anonymous(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # the process has ended
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("RssAnon:")), 0)


def watched(words: list[str], trace: bool = False) -> dict[str, float]:
    """Run a command; return the peak of the anonymous memory of its processes in MB, CPU seconds and seconds."""
    before, begin, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
    process, told = subprocess.Popen(words), 0
    while process.poll() is None:
        held = sum(map(_anonymous, _family(process.pid)))
        if trace and held > told + (25 << 20):
            print(f"{time.perf_counter() - begin:8.1f} s {held / 1e6:8.0f} MB", file=sys.stderr)
            told = held
        peak = max(peak, held)
        time.sleep(0.02)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"anonymous MB": peak / 1e6, "CPU s": used, "s": seconds}


PEER = """
import logging, sys, onnx
logging.disable(logging.INFO)
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4)
quantizer = MatMulNBitsQuantizer(onnx.load(sys.argv[1]), algo_config=config)
quantizer.process()
quantizer.model.save_model_to_file(sys.argv[2], True)
"""


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("folder", type=Path)
    maker.add_argument("--size", choices=SHAPES, default="300m")
    maker.add_argument("--float16", action="store_true")
    compiler = commands.add_parser("compile")
    compiler.add_argument("folder", type=Path)
    compiler.add_argument("out", type=Path)
    compiler.add_argument("--backend", default="cpu-int8:weights=int4,kernel=nbits")
    compiler.add_argument("--option", action="append", default=[], help="a further option of `dovetail compile`")
    compiler.add_argument("--peer", action="store_true", help="also run ONNX Runtime's quantizer")
    compiler.add_argument("--keep", action="store_true", help="keep the result")
    compiler.add_argument("--trace", action="store_true", help="print when memory grows")
    options = parser.parse_args()
    if options.command == "make":
        count = make(options.folder, SHAPES[options.size], np.float16 if options.float16 else np.float32)
        print(f"{count / 1e9:.3g} billion weights, {bytes_of(options.folder) / 1e9:.3g} GB")
        return
    rows = []
    words = ["dovetail", "compile", str(options.folder), "--backend", options.backend, "-o", str(options.out)]
    words += [word for option in options.option for word in option.split()]
    forget(options.folder)
    ours = watched(words, options.trace)
    size = bytes_of(options.out)
    lower = floor(options.folder, size, options.out.parent / f"{options.out.name}.floor")
    rows.append({"what": options.backend, "GB": size / 1e9, **ours, "s / floor": ours["s"] / lower})
    if options.peer:
        peer = options.out.parent / f"{options.out.name}.peer"
        peer.mkdir()
        forget(options.folder)
        words = [sys.executable, "-c", PEER, str(options.folder / "model.onnx"), str(peer / "model.onnx")]
        found = watched(words)
        rows.append(
            {"what": "MatMulNBitsQuantizer", "GB": bytes_of(peer) / 1e9, **found, "s / floor": found["s"] / lower}
        )
        shutil.rmtree(peer)
    rows.append({"what": "floor", "GB": size / 1e9, "s": lower, "s / floor": 1.0})
    table(rows)
    if not options.keep:
        shutil.rmtree(options.out)


if __name__ == "__main__":
    main()
