"""Language models as onnxruntime-genai's builder exports them: do they open, and in how many regions do they run?

    PYTHON bench/exports.py make FOLDER        needs torch, transformers and onnxruntime-genai; writes small random nets
    python bench/exports.py table FOLDER [--backend NAME ...]

A row per file in the folder and below it: nodes on the backend of all nodes, regions, conversions, and what stays on
the host. Masks and positions hold what generators give them, as in `dovetail compile FOLDER`. `cpu-int8` alone, which
quantizes activations, gets random numbers as data: four tokens of two texts behind five. Behind the table, for each
backend: how many files compile, are one region, and have nothing on the host, but for the conversion of an input.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

POSITIONS = (0, (1 << 24) - 1)
PROMISED = {
    "attention_mask": (0, 1), "decoder_attention_mask": (0, 1), "encoder_attention_mask": (0, 1),
    "position_ids": POSITIONS, "cache_position": POSITIONS,
}  # fmt: skip
BACKENDS = ("gpu-fp16", "cpu-bf16", "cpu-int8", "cpu-int8:weights=int4", "cpu-int8:weights=int4,kernel=nbits")
ROWS, PAST, NEW, READ = 2, 5, 4, 6  # texts; tokens of a cache, of a step and of an encoder
PRECISIONS = (("fp32", "cpu"), ("fp16", "cuda"), ("int4", "cpu"))
COMMON = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
SHARED, WIDE = {"num_key_value_heads": 2}, {"num_key_value_heads": 2, "head_dim": 32}
WINDOW = {"sliding_window": 64}
SCALED = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}  # fmt: skip
NETS = {  # names of transformers' classes without Config and ForCausalLM, and what differs from COMMON
    "llama": ("Llama", SHARED),
    "llama_scaled": ("Llama", SHARED | {"rope_parameters": SCALED}),
    "qwen2": ("Qwen2", SHARED | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", WIDE),
    "mistral": ("Mistral", SHARED | WINDOW),
    "phi": ("Phi", {"num_key_value_heads": 4}),
    "gemma": ("Gemma", {"num_key_value_heads": 1, "head_dim": 32}),
    "gemma2": ("Gemma2", WIDE | WINDOW | {"query_pre_attn_scalar": 32}),
    "smollm3": ("SmolLM3", SHARED),
    "olmo": ("Olmo", {"num_key_value_heads": 4}),
    "granite": ("Granite", SHARED),
    "nemotron": ("Nemotron", SHARED),
    "gpt_oss": ("GptOss", WIDE | WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "ernie": ("Ernie4_5", WIDE),
}
WHISPER = {
    "vocab_size": 600, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "num_mel_bins": 80,
    "max_source_positions": 1500, "max_target_positions": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "suppress_tokens": [], "begin_suppress_tokens": [],
}  # fmt: skip


def main() -> None:
    """Make the exports, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", nargs="*", default=BACKENDS)
    options = parser.parse_args()
    if options.what == "make":
        make(options.folder)
        return
    print("| export | backend | nodes | regions | conversions | on the host |\n|---|---|---|---|---|---|")
    found = collections.defaultdict(collections.Counter)
    for row in rows(options.folder, options.backend):
        print("|", " | ".join(row), "|", flush=True)
        _, backend, placed, regions, _, kept = row
        compiled = bool(placed)
        whole = regions == "1" and all(word.startswith("QuantizeLinear") for word in kept.split(", ") if word)
        found[backend].update(files=1, compile=compiled, one=regions == "1", whole=whole)
    print("\n| backend | files | compile | in one region | with nothing on the host |\n|---|---|---|---|---|")
    for backend, counts in found.items():
        print("|", backend, "|", " | ".join(str(counts[key]) for key in ("files", "compile", "one", "whole")), "|")


def make(folder: Path) -> None:
    """Write every net, and export it in every precision; what the builder refuses is said."""
    import torch
    import transformers

    torch.manual_seed(0)
    for name, (family, differences) in NETS.items():
        config = getattr(transformers, f"{family}Config")(**COMMON | differences)
        getattr(transformers, f"{family}ForCausalLM")(config).eval().save_pretrained(folder / "nets" / name)
        _tokenizer().save_pretrained(folder / "nets" / name)
    speech = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**WHISPER)).eval()
    for part in (speech, transformers.WhisperFeatureExtractor(), _tokenizer()):
        part.save_pretrained(folder / "nets" / "whisper")
    for source in sorted((folder / "nets").iterdir()):
        for precision, provider in PRECISIONS:
            command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(source)]
            command += ["-o", str(folder / f"{source.name}_{precision}"), "-p", precision, "-e", provider]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{source.name} {precision}: {done.stderr.strip().splitlines()[-1]}")


def _tokenizer():
    """A tokenizer of bytes and of pairs of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(["a line of text for a small net"] * 10, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def random_step(path: Path) -> dict[str, np.ndarray]:
    """Return random inputs of a model: tokens behind those of a cache, ones as masks, random numbers as caches."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in held]
    config = path.parent / "genai_config.json"
    size = json.loads(config.read_text())["model"]["decoder"]["head_size"] if config.is_file() else 0
    past = PAST if any("past" in value.name for value in inputs) else 0
    rng, found = np.random.default_rng(0), {}
    for value in inputs:
        name, kind = value.name, onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [_extent(one, at) for at, one in enumerate(value.type.tensor_type.shape.dim)]
        crossing = "encoder" in name or "cross" in name
        if "input_ids" in name:
            shape = [ROWS, NEW]
        elif "mask" in name:
            shape = [ROWS, READ if crossing else past + NEW]
        elif "past" in name and len(shape) == 4:
            read = 1500 if "cross" in name else READ
            shape = [ROWS, shape[1], read if crossing else past, size or shape[3]]
        elif name == "position_ids":
            shape = [ROWS, NEW]
        if np.dtype(kind).kind == "f":
            array = rng.standard_normal(shape)
        elif "input_ids" in name:
            array = rng.integers(3, 500, shape)
        elif name == "position_ids":
            array = np.broadcast_to(np.arange(past, past + NEW), shape)
        else:
            array = np.zeros(shape) if "token_type" in name else np.ones(shape)
        found[name] = array.astype(kind)
    return found


def _extent(extent: Any, axis: int) -> int:
    """Return a number for an extent: its own, texts for the first axis, and the tokens that an encoder read."""
    if extent.HasField("dim_value"):
        return extent.dim_value
    known = {
        "num_channels": 3, "height": 32, "width": 32, "feature_size": 16, "nb_max_frames": 3000,
        "encoder_sequence_length / 2": 1500,
    }  # fmt: skip
    return known.get(extent.dim_param, ROWS if axis == 0 else READ)


def rows(folder: Path, backends: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for every model and backend."""
    import dovetail
    import onnx
    from dovetail.errors import DovetailError
    from dovetail.planning import HOST, placement_of

    integers = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    for path in sorted(folder.rglob("*.onnx")):
        inputs = onnx.load(path, load_external_data=False).graph.input
        ranges = {
            value.name: PROMISED[value.name]
            for value in inputs
            if value.name in PROMISED and value.type.tensor_type.elem_type in integers
        }
        name = str(path.relative_to(folder).with_suffix(""))
        for backend in backends:
            try:
                data = [random_step(path)] * 3 if backend == "cpu-int8" else None
                compiled = dovetail.compile(path, [backend], verify=False, input_ranges=ranges, data=data)
            except DovetailError as error:
                yield name, backend, "", "", "", error.message[:80]
                continue
            nodes = list(compiled.model.nodes())
            host = collections.Counter(node.op_type for node in nodes if placement_of(node).backend == HOST)
            regions = sum(region.backend != HOST for region in compiled.regions)
            casts = sum(node.op_type == "Cast" for node in nodes)
            kept = ", ".join(f"{name} {count}" for name, count in host.most_common(4))
            placed = f"{len(nodes) - host.total()}/{len(nodes)}"
            yield name, backend, placed, str(regions), str(casts), kept


if __name__ == "__main__":
    main()
