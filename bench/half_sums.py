"""float16 as a device computes it that adds in float16: predicted by the emulation, and executed by WebGPU.

    ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1 python bench/half_sums.py --wheels FOLDER [--nets NAME ...] [--inputs 8]
                                           [--seconds 300] [--json FILE]

Each row is a trained net with real inputs (`trained_nets/`), compiled for gpu-fp16 with WebGPU as the engine that may
refuse nodes; the variable lets it take Mesa's software Vulkan where there is no GPU. The same result is then computed
three times: by WebGPU, by `half-sums` (what `gpu-fp16:accumulate=half` checks with on a CPU), and by ONNX Runtime's CPU
provider, which adds in float32. SNR in dB of the worst float output against ONNX Runtime in float32. Goal: predicted
within 3 dB of executed on nine of ten nets. Each net runs in a process of its own, which ends after `--seconds`; rows
are written as they come.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import dovetail
import numpy as np
from dovetail.plugin import Engine
from dovetail_gpu_fp16.half.engine import HalfSums
from dovetail_host import OnnxRuntimeCpu
from dovetail_onnxruntime_ep import WebGpu
from dovetail_runtime import RegionExecutor
from measure import table
from trained_nets import candidates, judging
from trained_nets.catalog import NETS
from trained_nets.wheels import Wheels

GOAL = 3.0
ENGINES: Mapping[str, type[Engine]] = {"executed": WebGpu, "predicted": HalfSums, "rounded": OnnxRuntimeCpu}


def worst(expected: Sequence[dict], found: Sequence[dict]) -> float:
    """The SNR of the worst float output, in dB; outputs that are exact count as 150."""
    rated = [quality.difference.snr_db for quality in judging.qualities(expected, found).values()]
    return min(150.0, *(value for value in rated if not np.isnan(value))) if rated else 150.0


def measured(model: Path, streams: Sequence, carried: Mapping[str, str], seconds: float) -> dict:
    """What the engines give for one net, on as many inputs as the seconds allow."""
    compiled = dovetail.compile(model, "gpu-fp16", verify=False)
    executors = {
        label: RegionExecutor(compiled.model, {"gpu-fp16": [engine()], "host": [OnnxRuntimeCpu()]})
        for label, engine in ENGINES.items()
    }
    start = time.perf_counter()
    for executor in executors.values():
        executor.run(streams[0][0])
    longest = max(len(stream) for stream in streams) * (time.perf_counter() - start)
    streams = streams[: max(1, int(seconds / 2 / longest))]
    expected = judging.computed(candidates.onnxruntime_float32(model).run, streams, carried)
    on = sum(node.backend == "gpu-fp16" for node in compiled.plan.nodes)
    row: dict = {"nodes": f"{on}/{len(compiled.plan.nodes)}", "inputs": len(streams)}
    for label, executor in executors.items():
        start = time.perf_counter()
        row[label] = round(worst(expected, judging.computed(executor.run, streams, carried)), 1)
        row[f"{label} s"] = round(time.perf_counter() - start, 1)
        if label == "executed":
            row["refused"] = sum("to the CPU" in note or "refuses" in note for note in executor.notes)
    same = row["predicted"] == row["executed"]
    row["difference"] = 0.0 if same else round(row["predicted"] - row["executed"], 1)
    return row


def _child(name: str, options: argparse.Namespace, answer) -> None:
    net = next(net for net in NETS if net.name == name)
    wheels = Wheels(options.wheels)
    try:
        streams = [stream[:4] for stream in net.streams(wheels)[0::2][: options.inputs]]
        row = measured(wheels.file(net.wheel, net.path), streams, net.carried, options.seconds)
    except BaseException as error:
        row = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:140]}"}
    answer.send(row)


def in_process(name: str, options: argparse.Namespace) -> dict:
    """The row of one net, from a process that ends in time."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(name, options, there))
    child.start()
    there.close()
    try:
        row = here.recv() if here.poll(options.seconds) else {"error": f"more than {options.seconds} s"}
    except EOFError:
        child.join()
        row = {"error": f"the process ended with {child.exitcode}"}
    child.kill()
    child.join()
    return {"net": name, **row}


def main() -> None:
    """Measure the nets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--nets", nargs="*", default=[net.name for net in NETS])
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.nets:
        rows.append(in_process(name, options))
        print(rows[-1], flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1), "utf-8")
    rated = [row for row in rows if "error" not in row]
    table(rated)
    near = sum(abs(row["difference"]) <= GOAL for row in rated)
    print(f"\n{near} of {len(rated)} within {GOAL:g} dB; {len(rows) - len(rated)} not measured")


if __name__ == "__main__":
    main()
