"""Weights in few bits at equal bytes: cpu-int8 beside ONNX Runtime, its exporter and NNCF, on trained decoders.

    python bench/equal_bytes.py WHEELS [--decoder smollm | flan] [--folder FOLDER] [--nncf PYTHON] [--block 32]

All of them quantize the same float32 file, those with data on the same texts, and are judged on others by one judge:
KL(softmax(float32) || softmax(result)) of the next token in nats, the share of equal next tokens, and SNR of logits.
Files for ONNX Runtime run there with accuracy level 1, those of NNCF in OpenVINO in float32; NNCF does not take
GroupQueryAttention, so it gets the same decoder with attention written out.

MB are those of all weights. Peers leave the embedding in float32; where it equals the head, it is not counted for
them, as if both were one tensor at no loss, and ours are one tensor. A peer is followed by ours with at most its bytes
(`--max-size`). `default` is what ONNX Runtime's exporter does with `-p int4`; `k_quant mixed` are its 8 bits for the
head and for queries, keys, values and `down` of the first and last eighth of layers and of every third one between.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dovetail
import numpy as np
import onnx
import trained_decoder
import trained_llama
from dovetail.errors import DovetailError
from measure import table
from trained_nets.wheels import Wheels
from weight_only import Feeds, in_onnxruntime, in_openvino

DECODERS = {"smollm": trained_llama, "flan": trained_decoder}
NNCF = """
import sys, numpy as np, nncf, openvino as ov
source, out, data, group, method = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
feeds = np.load(data, allow_pickle=True)["feeds"].tolist()
settings = {"awq": {"awq": True}, "scales": {"awq": True, "scale_estimation": True}, "gptq": {"gptq": True}}[method]
made = nncf.compress_weights(
    ov.Core().read_model(source), mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=group, ratio=1.0, all_layers=True,
    ignored_scope=nncf.IgnoredScope(types=["Gather"], validate=False), dataset=nncf.Dataset(feeds), **settings,
)
ov.save_model(made, out, compress_to_fp16=False)
"""


def of_onnxruntime(source: Path, out: Path, algorithm: str, block: int, symmetric: bool) -> Path:
    """Quantize with ONNX Runtime's tool, as its exporter calls it."""
    from onnxruntime.quantization import matmul_nbits_quantizer as tool

    model = onnx.load(str(source))
    if algorithm == "default":
        config = tool.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, accuracy_level=4)
    elif algorithm == "rtn":
        config = tool.RTNWeightOnlyQuantConfig()
    else:
        wide = {name: {"bits": 8} for name in _wide(model)} if algorithm == "k_quant mixed" else {}
        config = tool.KQuantWeightOnlyQuantConfig(customized_weight_config=wide)
    if algorithm != "default":
        config.block_size, config.bits = block, 4
    quantizer = tool.MatMulNBitsQuantizer(model, block_size=block, is_symmetric=symmetric, algo_config=config)
    quantizer.process()
    out.mkdir(parents=True, exist_ok=True)
    onnx.save(quantizer.model.model, str(out / "model.onnx"), save_as_external_data=True, location="model.onnx.data")
    return out / "model.onnx"


def _wide(model: onnx.ModelProto) -> list[str]:
    """Return the products that `k_quant mixed` gives 8 bits."""
    numbered = [node.name.split(".")[1] for node in model.graph.node if node.name.startswith("layers.")]
    layers = max(map(int, numbered), default=-1) + 1
    most = [at for at in range(layers) if at < layers / 8 or at >= 7 * layers / 8 or (at - round(layers / 8)) % 3 == 2]
    return ["lm_head", *(f"layers.{at}.{part}" for at in most for part in ("q", "k", "v", "down"))]


def of_nncf(source: Path, out: Path, samples: list[Feeds], python: str, block: int, method: str) -> Path:
    """Quantize with NNCF in its own environment, on the same data as ours."""
    out.mkdir(parents=True, exist_ok=True)
    names = {one.name for one in onnx.load(str(source), load_external_data=False).graph.input}
    given = [{name: array for name, array in feeds.items() if name in names} for feeds in samples]
    np.savez(out / "data.npz", feeds=np.array(given, dtype=object))
    words = [python, "-c", NNCF, source, out / "model.xml", out / "data.npz", block, method]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [*map(str, words)], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return out / "model.xml"


def ours(source: Path, out: Path, options: str, high: list[str], samples: list[Feeds] | None, size: int = 0) -> Path:
    """Compile, with data or without, within a size where one is given; the nodes `high` stay floats."""
    request: dict = {"data": samples, "refine": "smooth,scales"} if samples else {}
    if high:
        request["high"] = high
    if size:
        request["max_size"] = size
    made = dovetail.compile(source, f"cpu-int8:{options},kernel=nbits", verify=False, try_engines=False, **request)
    made.save(out)
    return out / "model.onnx"


def size_of(path: Path, embedding: int) -> int:
    """Return the bytes of all weights; `embedding` bytes of a table in float32 are not counted."""
    if path.suffix == ".xml":
        return path.with_suffix(".bin").stat().st_size - embedding
    found = 0
    for tensor in onnx.load(str(path), load_external_data=False).graph.initializer:
        length = next((int(entry.value) for entry in tensor.external_data if entry.key == "length"), None)
        length = len(tensor.raw_data) if length is None else length
        found += 0 if length == embedding else length
    return found


def judged(exact: np.ndarray, found: np.ndarray) -> dict[str, str]:
    """Return SNR, KL of the next token and the share of equal ones."""
    first, second = (one.astype(np.float64) - one.max(-1, keepdims=True) for one in (exact, found))
    logs = [one - np.log(np.exp(one).sum(-1, keepdims=True)) for one in (first, second)]
    kl = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(-1).mean()
    noise = np.square(found.astype(np.float64) - exact).sum()
    snr = 10 * np.log10(np.square(exact.astype(np.float64)).sum() / noise) if noise else np.inf
    same = (exact.argmax(-1) == found.argmax(-1)).mean()
    return {"SNR": f"{snr:.2f}", "KL": f"{kl:.4f}", "same": f"{100 * same:.1f} %"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--decoder", choices=DECODERS, default="smollm")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--nncf", metavar="PYTHON")
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    block, wheels, decoder = options.block, Wheels(options.wheels), DECODERS[options.decoder]
    with tempfile.TemporaryDirectory() as work:
        folder = options.folder or Path(work)
        source = decoder.write(wheels, folder / "source")
        plain = decoder.write(wheels, folder / "plain", plain=True) if decoder is trained_llama else source
        samples, texts, _ = decoder.texts(wheels)
        graph = onnx.load(str(source), load_external_data=False).graph
        embedding = next(4 * int(np.prod(tensor.dims)) for tensor in graph.initializer if tensor.name == "embedding")
        tied = decoder is trained_llama  # else the embedding stays float32, as that of peers
        high = [] if tied else [node.name for node in graph.node if "embedding" in node.input]

        def logits(path: Path) -> np.ndarray:
            exactly = path.suffix == ".xml"
            run = (
                in_openvino(path, options.threads, exact=True) if exactly else in_onnxruntime(path, 1, options.threads)
            )
            return np.concatenate([run(text)[0] for text in texts])

        exact, rows = logits(source), []

        def row(name: str, make: Callable[..., Path], *args: object, given: Path = source) -> int:
            start = time.perf_counter()
            try:
                path = make(given, folder / f"{len(rows)}", *args)
                size = size_of(path, embedding)
                made = time.perf_counter() - start
                rows.append(
                    {"file": name, "MB": f"{size / 1e6:.1f}", **judged(exact, logits(path)), "s": f"{made:.0f}"}
                )
            except (ValueError, RuntimeError, DovetailError, subprocess.CalledProcessError) as error:
                rows.append({"file": name, "MB": "", "SNR": "", "KL": f"fails: {str(error)[:60]}", "same": "", "s": ""})
                size = 0
            print(rows[-1], flush=True)
            return size

        blocks = f"weights=int4,scheme=asymmetric,scales=float16,embedding=as-weights,block={block}"
        row(f"cpu-int8 uint4, {block}", ours, blocks, high, None)
        row(f"cpu-int8 uint4, {block}, data", ours, blocks, high, samples)
        sizes = []
        for words, algorithm, symmetric in (
            ("default, int4", "default", True), ("default, uint4", "default", False),
            ("k_quant, uint4", "k_quant", False),
            *([("k_quant mixed, uint4 and uint8", "k_quant mixed", False)] if tied else []),
        ):  # fmt: skip
            sizes.append(row(f"ONNX Runtime {words}, {block}", of_onnxruntime, algorithm, block, symmetric))
        methods = {"awq": "AWQ", "scales": "AWQ and scale estimation", "gptq": "GPTQ"}
        for method, words in methods.items() if options.nncf else ():
            name = f"NNCF {words}, uint4, {block}"
            sizes.append(row(name, of_nncf, samples, options.nncf, block, method, given=plain))
            if method == "awq":
                for size in sorted({size // 10**5 for size in sizes if size}):
                    limit = size * 10**5 if tied else size * 10**5 + embedding
                    row(f"cpu-int8 within {size / 10:.1f} MB, data", ours, blocks, high, samples, limit)
        print()
        table(rows)


if __name__ == "__main__":
    main()
