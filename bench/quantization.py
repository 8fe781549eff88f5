"""Seconds and peak memory of calibrating with `percentile`: Dovetail beside ONNX Runtime's quantize_static.

    python bench/quantization.py resnet50.onnx --samples 16

Both read random samples one by one, observe with the percentile 99.99, quantize symmetrically per tensor (weights per
channel), and save the model. Each runs in a process of its own; the peak is that of its resident memory, interpreter
and libraries included. Dovetail does not compare the result with the original here.
"""

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BACKEND = """
backend: bench-int8
device: cpu
opset: 13..26
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric, observer: percentile}
  w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
  b32: {dtype: int32, scale: X*W}
ops:
  Conv: {role: active, types: {X: q8, W: w8, B: b32, Y: q8}}
  MatMul: {role: active, types: q8}
  Add: {role: active, types: {A: q8, B: q8, C: q8}}
  Relu, MaxPool: {role: passive, types: q8, same_scale: true}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""

COLUMNS = {
    "calibrate": "calibrate s",
    "processor": "its processor s",
    "calibrate_peak": "peak MB until then",
    "whole": "whole s",
    "peak": "peak MB of the whole",
    "snr": "SNR dB",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3, help="the best of these counts")
    parser.add_argument(
        "--fused", action="store_true", help="Dovetail's backend computes a Relu together with its Conv"
    )
    parser.add_argument("--only", choices=["dovetail", "onnxruntime"], help="run this here, and print JSON")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measured(args.only, args.model, args.samples, args.fused)))
        return
    rounds = [
        {name: in_process(name, args.model, args.samples, args.fused) for name in ("dovetail", "onnxruntime")}
        for _ in range(args.rounds)
    ]
    best = {name: {key: min(one[name][key] for one in rounds) for key in found} for name, found in rounds[0].items()}
    print("| | " + " | ".join(COLUMNS.values()) + " |")
    for name, row in best.items():
        print(f"| {name} | " + " | ".join(f"{row[key]:.3g}" for key in COLUMNS) + " |")
    ratios = (best["onnxruntime"][key] / best["dovetail"][key] for key in COLUMNS)
    print("| ratio | " + " | ".join(f"{ratio:.1f}" for ratio in ratios) + " |")


def in_process(name, model, samples, fused):
    command = [sys.executable, __file__, model, "--samples", str(samples), "--only", name, *["--fused"] * fused]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def measured(name, model, samples, fused):
    with tempfile.TemporaryDirectory() as folder:
        seconds, start = {}, time.perf_counter()
        inputs(model)  # imports are not what is measured
        if name == "dovetail":
            dovetail_percentile(model, samples, Path(folder), seconds, fused)
        else:
            onnxruntime_percentile(model, samples, Path(folder), seconds)
        found = {"whole": time.perf_counter() - start, "peak": peak(), **seconds}
        (result,) = Path(folder).rglob("model.onnx")
        return {**found, "snr": snr(model, result, samples)}


def snr(model, result, samples):
    """The SNR of the first output on the same samples, both run by ONNX Runtime, in decibels."""
    import onnxruntime

    # The integers are computed as they stand in the graph, which is the same for both.
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    sessions = [onnxruntime.InferenceSession(str(path), plain, ["CPUExecutionProvider"]) for path in (model, result)]
    signal = noise = 0.0
    for feed in feeds(model, samples):
        exact, given = (session.run(None, feed)[0].astype(np.float64) for session in sessions)
        signal, noise = signal + np.sum(exact**2), noise + np.sum((given - exact) ** 2)
    return 10 * float(np.log10(signal / noise))


def peak():
    """The highest resident memory of this process so far, in megabytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def feeds(model, samples):
    """Random samples by input name, one at a time; open extents are 1."""
    given = inputs(model)
    rng = np.random.default_rng(0)
    for _ in range(samples):
        yield {
            name: (rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 256, shape)).astype(dtype)
            for name, shape, dtype in given
        }


@functools.cache
def inputs(model):
    """Name, shape and type of each input; read without the weights."""
    import dovetail

    return [
        (value.name, [extent if isinstance(extent, int) else 1 for extent in value.shape], value.dtype.numpy())
        for value in dovetail.open(model).graph.inputs
        if not value.is_initializer()
    ]


def dovetail_percentile(model, samples, folder, seconds, fused=False):
    import dovetail

    package = folder / "bench_int8"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "int8.yaml").write_text(
        BACKEND.replace("B: b32, Y: q8}", "B: b32, Y: q8}, fuses: Relu") if fused else BACKEND
    )
    sys.path.insert(0, str(folder))
    plugins = dovetail.load_plugins()
    plugins.registry.backend("bench-int8", "bench_int8:int8.yaml")
    timed("dovetail_quantize.calibrate", "Calibrate.run", seconds)
    compiled = dovetail.compile(model, "bench-int8", data=lambda: feeds(model, samples), plugins=plugins, verify=False)
    compiled.save(folder / "result")


def onnxruntime_percentile(model, samples, folder, seconds):
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self._feeds = feeds(model, samples)

        def get_next(self):
            return next(self._feeds, None)

    timed("onnxruntime.quantization.calibrate", "PercentileCalibrater.collect_data", seconds)
    timed("onnxruntime.quantization.calibrate", "PercentileCalibrater.compute_data", seconds)
    options = {"CalibPercentile": 99.99, "ActivationSymmetric": True, "WeightSymmetric": True}
    quantize_static(
        model,
        str(folder / "model.onnx"),
        Reader(),
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.Percentile,
        extra_options=options,
    )


def timed(module, path, seconds):
    """Add the time of a method to `calibrate`."""
    import importlib

    owner, name = path.split(".")
    kind = getattr(importlib.import_module(module), owner)
    found = getattr(kind, name, None)

    def method(*args, **options):
        start, worked = time.perf_counter(), time.process_time()
        try:
            return found(*args, **options)
        finally:
            seconds["processor"] = seconds.get("processor", 0) + time.process_time() - worked
            seconds["calibrate"] = seconds.get("calibrate", 0) + time.perf_counter() - start
            seconds["calibrate_peak"] = peak()

    setattr(kind, name, method)


if __name__ == "__main__":
    main()
