"""Time a compiled model against the engines that would run the original, in turns.

    python bench/run.py MODEL [--backend cpu-bf16] [--rounds 4] [--runs 25] [--threads 2]

Peers: ONNX Runtime on the float32 file, OpenVINO in float32, and OpenVINO's own bfloat16 mode on the same file. SNR is
that of the worst float output against ONNX Runtime in float32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import dovetail
import numpy as np
from dovetail_runtime.data.batches import batches
from dovetail_verify.metrics import DifferenceSums
from dovetail_verify.random_inputs import random_batch
from measure import table

Run = Callable[[dict], dict]


def onnxruntime_float32(model: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def openvino_mode(hint: str) -> Callable[[Path, int], Run]:
    def load(model: Path, threads: int) -> Run:
        import openvino

        config = {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        compiled = openvino.Core().compile_model(str(model), "CPU", config)
        names = [next(iter(output.get_names())) for output in compiled.outputs]
        request = compiled.create_infer_request()
        return lambda feeds: dict(zip(names, request.infer(feeds).to_tuple(), strict=True))

    return load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="cpu-bf16")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    data = options.model.with_suffix(".npz")
    model = dovetail.open(options.model)
    feeds = next(batches(model, data))[0] if data.exists() else random_batch(model)
    compiled = dovetail.compile(options.model, [options.backend], verify=False)
    compiled.options["threads"] = options.threads
    runs: dict[str, Run] = {
        "onnxruntime float32": onnxruntime_float32(options.model, options.threads),
        "openvino float32": openvino_mode("f32")(options.model, options.threads),
        "openvino bfloat16 mode": openvino_mode("bf16")(options.model, options.threads),
        f"dovetail {options.backend}": compiled.run,
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    reference = runs["onnxruntime float32"](feeds)
    quality = {name: _snr(reference, run(feeds)) for name, run in runs.items()}
    for turn in range(options.rounds):
        for name, run in runs.items() if turn % 2 == 0 else reversed(runs.items()):
            for _ in range(options.runs):
                start = time.perf_counter()
                run(feeds)
                times[name].append(time.perf_counter() - start)
    base = statistics.median(times["onnxruntime float32"])
    rows = []
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        snr = " / ".join(f"{value:.1f}" for value in quality[name])
        rows.append({"engine": name, "median ms": middle * 1e3, "against onnxruntime": base / middle, "SNR dB": snr})
    table(rows)
    for note in compiled.notes():
        print(f"\nnote: {note}")
    print(f"\n{compiled.summary()}")


def _snr(reference: dict, result: dict) -> list[float]:
    """The SNR of every float output, in order."""
    found = []
    for name, array in reference.items():
        if np.asarray(array).dtype.kind == "f":
            difference = DifferenceSums()
            difference.add(array, np.asarray(result[name]))
            found.append(difference.snr_db)
    return found


if __name__ == "__main__":
    main()
