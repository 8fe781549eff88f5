"""What runs on the emulated machine: one model, compiled and original, in OpenVINO; prints lines of JSON.

python3 guest.py FOLDER             with model.onnx, inputs.npz, reference.npz and compiled/
"""

from __future__ import annotations

import collections
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dovetail
import numpy as np
import openvino
from dovetail_verify.metrics import Difference

PRODUCTS = ("Conv", "Gemm", "MatMul")


def main() -> None:
    folder = Path(sys.argv[1])
    feeds, reference = (dict(np.load(folder / name)) for name in ("inputs.npz", "reference.npz"))
    compiled = dovetail.load(folder / "compiled")
    compiled.options["threads"] = 1
    report("dovetail cpu-bf16", compiled.run, feeds, reference)
    products = {node.name: node.op_type for node in compiled.plan.nodes if node.op_type in PRODUCTS}
    executed = compiled.executed()
    counts = collections.Counter(f"{executed[name].precision} {executed[name].how.split(':')[0]}" for name in products)
    say(executed=dict(counts))
    config = {"INFERENCE_PRECISION_HINT": "bf16", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1}
    original = openvino.Core().compile_model(str(folder / "model.onnx"), "CPU", config)
    names = [next(iter(output.get_names())) for output in original.outputs]
    request = original.create_infer_request()
    run = lambda feeds: dict(zip(names, request.infer(feeds).to_tuple(), strict=True))  # noqa: E731
    report("openvino bfloat16 mode", run, feeds, reference)


def report(engine: str, run: Callable[[dict], dict], feeds: dict, reference: dict) -> None:
    """The SNR of every float output, and the instructions of a run that is not the first."""
    run(feeds)
    start = time.perf_counter()
    result = run(feeds)
    seconds = time.perf_counter() - start
    quality = {}
    for name, array in reference.items():
        if array.dtype.kind == "f":
            difference = Difference()
            difference.add(array, np.asarray(result[name]).astype(np.float32))
            quality[name] = difference.snr_db
    say(engine=engine, snr=quality, instructions=seconds * _clock())


def _clock() -> float:
    """Instructions per second: the emulated clock ticks once per instruction, at the rate that the CPU claims."""
    line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("cpu MHz"))
    return float(line.split(":")[1]) * 1e6


def say(**fields) -> None:
    print("RESULT", json.dumps(fields))


if __name__ == "__main__":
    main()
