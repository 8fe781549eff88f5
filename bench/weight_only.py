"""Weights alone in few bits: cpu-int8 beside ONNX Runtime's MatMulNBits quantizer, on a decoder.

    python bench/weight_only.py [--shape small] [--tokens 256] [--past 64] [--rounds 15] [--threads 2] [--folder FOLDER]
                                [--nncf PYTHON] [--no-times] [--trained WHEELS]

With `--trained`, the decoder is the trained one of `trained_decoder.py`, which reads documentation. Else it is that of
`decoder.py`, with a head of its own, because the quantizer of ONNX Runtime quantizes no head that shares the embedding.
MB are those of all weights but the embedding, which it leaves in floats. SNR and KL are those of the logits of a text,
or of `--tokens` tokens, with accuracy level 1 in ONNX Runtime. Times are those of one token, at random weights behind
`--past` others, in ONNX Runtime with the accuracy levels 1 and 4 and in OpenVINO (our files with `kernel=qdq`): the
least of runs that take turns, as ratios to float32 in ONNX Runtime.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import decoder
import dovetail
import numpy as np
import onnx
import trained_decoder
from measure import table
from trained_nets.wheels import Wheels

OURS = {
    "int8": {"backend": "weights=int8"},
    "int4, 32": {"backend": "weights=int4"},
    "int4, 128": {"backend": "weights=int4,block=128"},
    "uint4, 32": {"backend": "weights=int4,scheme=asymmetric"},
    "uint4, 64": {"backend": "weights=int4,scheme=asymmetric,block=64"},
    "uint4, 128": {"backend": "weights=int4,scheme=asymmetric,block=128"},
    "uint4, 128, mixed": {"backend": "weights=int4,scheme=asymmetric,block=128", "share": 0.25},
    "uint4, 32, float16 scales": {"backend": "weights=int4,scheme=asymmetric,scales=float16"},
    "uint4, 64, float16 scales": {"backend": "weights=int4,scheme=asymmetric,block=64,scales=float16"},
    "uint4, 128, float16 scales": {"backend": "weights=int4,scheme=asymmetric,block=128,scales=float16"},
    "uint4, 32, float16 scales, data": {"backend": "weights=int4,scheme=asymmetric,scales=float16", "data": True},
    "uint4, 32, data": {"backend": "weights=int4,scheme=asymmetric", "data": True},
    "uint4, 128, data": {"backend": "weights=int4,scheme=asymmetric,block=128", "data": True},
    "uint4, 128, mixed, data": {
        "backend": "weights=int4,scheme=asymmetric,block=128",
        "share": 0.25,
        "data": True,
    },
}


def compiled(
    subject: Subject, out: Path, backend: str, share: float = 0.0, kernel: str = "nbits", data: bool = False
) -> Path:
    """Compile for a kernel; with `share`, of the bytes between 4 and 8 bits that many are allowed."""
    if (out / "model.onnx").exists():
        return out / "model.onnx"
    request = {"data": subject.samples, "refine": "smooth,scales"} if data else {}
    if share:
        narrow, wide = (
            _all_bytes(compiled(subject, out.with_name(f"{out.name}_{bits}"), options))
            for bits, options in ((4, backend), (8, "weights=int8"))
        )
        request["max_size"] = int(narrow + share * (wide - narrow))
    made = dovetail.compile(
        subject.source, f"cpu-int8:{backend},kernel={kernel}", verify=False, try_engines=False, **request
    )
    made.save(out)
    return out / "model.onnx"


Feeds = dict[str, np.ndarray]


class Subject(NamedTuple):
    """A decoder in float32, what it is calibrated and compared on, a token to time, and the bytes of its embedding."""

    source: Path
    samples: list[Feeds]
    texts: list[Feeds]
    token: Feeds
    embedding: int


def random_decoder(options: argparse.Namespace, folder: Path) -> Subject:
    """Return the decoder with random weights; it is calibrated on other tokens than those that are compared."""
    shape = decoder.SHAPES[options.shape]
    samples = [decoder.feeds(shape, 128, 0, seed) for seed in (11, 12, 13, 14)]
    long, token = decoder.feeds(shape, options.tokens, 0, 1), decoder.feeds(shape, 1, options.past, 2)
    source = decoder.write(folder, shape, tied=False)
    return Subject(source, samples, [long], token, shape.vocabulary * shape.hidden * 4)


def trained(wheels: Path, folder: Path) -> Subject:
    """Return the trained decoder."""
    there = Wheels(wheels)
    size = trained_decoder.VOCABULARY * trained_decoder.HIDDEN * 4
    return Subject(trained_decoder.write(there, folder), *trained_decoder.texts(there), size)


NNCF = """
import sys, numpy as np, nncf, openvino as ov
source, out, data, group = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
feeds = np.load(data, allow_pickle=True)["feeds"].tolist()
model = ov.Core().read_model(source)
made = nncf.compress_weights(
    model, mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=group, ratio=1.0, all_layers=True, awq=True,
    ignored_scope=nncf.IgnoredScope(types=["Gather"]), dataset=nncf.Dataset(feeds),
)
ov.save_model(made, out, compress_to_fp16=False)
"""


def nncfs(subject: Subject, out: Path, python: str, block: int) -> Path:
    """Quantize with NNCF in its own environment: int4 with AWQ on the same data as ours."""
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "data.npz", feeds=np.array(subject.samples, dtype=object))
    found = out / "model.xml"
    words = [python, "-c", NNCF, subject.source, found, out / "data.npz", block]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([*map(str, words)], check=True, env=environment, stdout=subprocess.DEVNULL)
    return found


def theirs(source: Path, out: Path, algorithm: str, block: int, symmetric: bool) -> Path:
    """Quantize with ONNX Runtime's tool."""
    from onnxruntime.quantization import matmul_nbits_quantizer as tool

    logging.disable(logging.INFO)
    model = onnx.load(str(source))
    config = tool.KQuantWeightOnlyQuantConfig() if algorithm == "k_quant" else None
    if config is not None:
        config.block_size, config.bits = block, 4
    quantizer = tool.MatMulNBitsQuantizer(model, block_size=block, is_symmetric=symmetric, algo_config=config)
    quantizer.process()
    out.mkdir(parents=True, exist_ok=True)
    onnx.save(quantizer.model.model, str(out / "model.onnx"))
    return out / "model.onnx"


def _all_bytes(path: Path, but: str = " ") -> int:
    model = onnx.load(str(path), load_external_data=False)
    sizes = 0
    for tensor in model.graph.initializer:
        if tensor.name.startswith(but):
            continue
        length = next((int(entry.value) for entry in tensor.external_data if entry.key == "length"), None)
        sizes += len(tensor.raw_data) if length is None else length
    return sizes


Run = Callable[[Feeds], np.ndarray]


def in_onnxruntime(path: Path, level: int, threads: int) -> Run:
    """ONNX Runtime on a file, with an accuracy level for every product."""
    import onnxruntime

    model = onnx.load(str(path))
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            kept = [one for one in node.attribute if one.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("accuracy_level", level)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)[0]


def in_openvino(path: Path, threads: int, exact: bool = False) -> Run:
    """OpenVINO on a file, as its users run it, or without rounding anything but weights."""
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    if exact:
        config |= {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "KV_CACHE_PRECISION": "f32"}
    request = openvino.Core().compile_model(str(path), "CPU", config).create_infer_request()
    return lambda feeds: np.array(request.infer(feeds).to_tuple()[0])


def accuracy(exact: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Return SNR in dB and mean KL divergence of two arrays of logits."""
    logs = [one - one.max(-1, keepdims=True) for one in (exact.astype(np.float64), found.astype(np.float64))]
    first, second = (one - np.log(np.exp(one).sum(-1, keepdims=True)) for one in logs)
    noise = np.square(found.astype(np.float64) - exact).sum()
    snr = 10 * np.log10(np.square(exact.astype(np.float64)).sum() / noise)
    return float(snr), float((np.exp(first) * (first - second)).sum(-1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=decoder.SHAPES, default="small")
    for name, default in (("tokens", 256), ("past", 64), ("rounds", 15), ("threads", min(2, os.cpu_count() or 1))):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="keeps the files; those that are there are not made again")
    parser.add_argument("--nncf", metavar="PYTHON", help="an interpreter with nncf, for its int4 with data")
    parser.add_argument("--trained", type=Path, metavar="WHEELS", help="the trained decoder, of a wheel in this folder")
    parser.add_argument("--no-times", action="store_true", help="sizes, SNR and KL alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = options.folder or Path(work)
        at = folder / "source"
        subject = trained(options.trained, at) if options.trained else random_decoder(options, at)
        files = {"float32": subject.source}
        files |= {
            f"cpu-int8 {name}": compiled(subject, folder / f"ours_{index}", **asked)
            for index, (name, asked) in enumerate(OURS.items())
        }
        qdq = (
            {}
            if options.no_times
            else {
                f"cpu-int8 {name}": compiled(subject, folder / f"qdq_{index}", **asked, kernel="qdq")
                for index, (name, asked) in enumerate(OURS.items())
            }
        )
        for algorithm, block, symmetric in (
            ("default", 32, True), ("default", 32, False), ("default", 128, False),
            ("k_quant", 32, False), ("k_quant", 128, False),
        ):  # fmt: skip
            name = f"ONNX Runtime {algorithm}, {'int4' if symmetric else 'uint4'}, {block}"
            try:
                files[name] = theirs(subject.source, folder / f"theirs_{len(files)}", algorithm, block, symmetric)
            except ValueError as error:
                print(name, "fails:", error)
        for block in (32, 128) if options.nncf else ():
            files[f"NNCF AWQ, uint4, {block}"] = nncfs(subject, folder / f"nncf_{block}", options.nncf, block)
        exact, rows, runs = None, [], {}
        for name, path in files.items():
            if path.suffix == ".xml":
                run = in_openvino(path, options.threads, exact=True)
                runs[name] = [] if options.no_times else [in_openvino(path, options.threads)]
            else:
                run = in_onnxruntime(path, 1, options.threads)
                if not options.no_times:
                    again = in_onnxruntime(path, 4, options.threads)
                    runs[name] = [run, again, in_openvino(qdq.get(name, path), options.threads)]
            found = np.concatenate([run(text)[0] for text in subject.texts])
            exact = found if exact is None else exact
            snr, kl = accuracy(exact, found) if name != "float32" else (np.inf, 0.0)
            if path.suffix == ".xml":  # its embedding stays in float32
                size = (path.with_suffix(".bin").stat().st_size - subject.embedding) / 1e6
            else:
                size = _all_bytes(path, "embedding") / 1e6
            rows.append({"file": name, "MB": f"{size:.3g}", "SNR": f"{snr:.2f}", "KL": f"{kl:.2e}"})
        times = {name: [np.inf] * len(each) for name, each in runs.items()}
        for _ in range(0 if options.no_times else options.rounds):
            for name, each in runs.items():
                for index, run in enumerate(each):
                    start = time.perf_counter()
                    run(subject.token)
                    times[name][index] = min(times[name][index], time.perf_counter() - start)
        base = 0.0 if options.no_times else times["float32"][0]
        for row in rows if not options.no_times else ():
            spent = times[row["file"]]
            ratios = [f"{one / base:.3f}" for one in spent]
            row |= dict(
                zip(("ORT level 1", "ORT level 4", "OpenVINO"), ["", ""] * (len(spent) == 1) + ratios, strict=True)
            )
        print()
        table(rows)
        if options.no_times:
            return
        print(f"\nfloat32 in ONNX Runtime: {base * 1e3:.3g} ms per token")


if __name__ == "__main__":
    main()
