"""Accuracy of int8 engines: `tensorrt:precision=int8` beside ONNX Runtime's quantize_static in the form TensorRT takes.

    python bench/engine_integers.py --wheels FOLDER [--nets NAME ...]

The nets and their inputs are those of `int8.py`; half of the inputs calibrate (16 at most), the others are judged. Both
results run on ONNX Runtime's CPU provider. quantize_static gets symmetric int8 for activations and weights (these by
channel), zero biases left in float32, and Conv, Gemm and MatMul alone; the better of MinMax and Entropy counts for each
output. Columns: SNR against float32, the share of rows with the same best class where an output has classes, and
whether TensorRT-RTX parses the whole model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import dovetail
import int8
import quantizers
from measure import table
from trained_nets import candidates, judging
from trained_nets.wheels import Wheels

NETS = (
    "digits", "PP-OCRv2 direction", "PP-OCRv4 recognizer", "PP-OCRv4 detector", "page orientation", "NudeNet 320n",
    "malware as pictures", "speech embedding",
)  # fmt: skip
OURS, METHODS = "tensorrt", ("MinMax", "Entropy")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--nets", nargs="+", default=NETS)
    options = parser.parse_args()
    rows = []
    for name in options.nets:
        rows += measured(int8.BY_NAME[name], Wheels(options.wheels))
    table(rows)


def measured(net, wheels: Wheels) -> list[dict[str, str]]:
    """The rows of one net."""
    model = wheels.file(net.wheel, net.path) if net.wheel else Path(net.path)
    streams = net.streams(wheels)
    test, others = streams[0::2], streams[1::2]
    float32 = candidates.onnxruntime_float32(model)
    expected = judging.computed(float32.run, test, net.carried)
    data = judging.complete(others, judging.computed(float32.run, others, net.carried), net.carried)
    data = data[:: max(1, len(data) // int8.CALIBRATED_ON)][: int8.CALIBRATED_ON]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = {OURS: compiled(model, data, folder / "ours")}
        prepared = quantizers.prepared(model, folder)
        found = {}
        for method in METHODS:
            try:
                files[method] = symmetric(prepared, data, folder, method)
            except Exception as error:  # a tool that fails is a finding
                print(f"{net.name}: {method} fails: {' '.join(str(error).split())[:100]}", file=sys.stderr)
        for who, path in files.items():
            results = judging.computed(candidates.onnxruntime_float32(path).run, test, net.carried)
            found[who] = judging.qualities(expected, results)
        taken = {who: built(files[who]) for who in (OURS, "MinMax")}
    rows = []
    for output in found[OURS]:
        best = max((who for who in METHODS if who in found), key=lambda who: found[who][output].difference.snr_db)
        row = {"net": net.name, "output": output}
        for title, who in ((OURS, OURS), ("quantize_static", best)):
            quality = found[who][output]
            same = (
                f" ({100 * quality.same / quality.answers:.1f} %)" if output in net.classes and quality.answers else ""
            )
            row[title] = f"{quality.difference.snr_db:.1f} dB{same}"
        row["of"] = best
        row |= {"tensorrt parses": taken[OURS], "quantize_static parses": taken["MinMax"]}
        rows.append(row)
    return rows


def compiled(model: Path, data: list, folder: Path) -> Path:
    """Ours, without engines: their calls would hide the nodes."""
    pipeline = dovetail.compile(model, "tensorrt:precision=int8", data=list(data), verify=False, try_engines=False)
    pipeline.save(folder)
    return folder / "model.onnx"


def symmetric(model: Path, data: list, folder: Path, method: str) -> Path:
    """QDQ as TensorRT takes it."""
    from onnxruntime import quantization as static

    class Reader(static.CalibrationDataReader):
        def __init__(self):
            self._feeds = iter(data)

        def get_next(self):
            return next(self._feeds, None)

    path = folder / f"symmetric_{method}.onnx"
    static.quantize_static(
        model, path, Reader(), quant_format=static.QuantFormat.QDQ, per_channel=True,
        activation_type=static.QuantType.QInt8, weight_type=static.QuantType.QInt8,
        op_types_to_quantize=["Conv", "Gemm", "MatMul"], calibrate_method=getattr(static.CalibrationMethod, method),
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False,
                       "AddQDQPairToWeight": False},
    )  # fmt: skip
    return path


def built(path: Path) -> str:
    """Whether TensorRT parses it."""
    from dovetail_tensorrt.inlined import inlined
    from dovetail_tensorrt.libraries import NoLibrary, library
    from dovetail_tensorrt.parser import parse

    try:
        verdict = parse(inlined(dovetail.open(path)), library()).verdict
    except NoLibrary:
        return "?"
    return "yes" if verdict.ok else f"no: {verdict.errors[0].text[:60]}"


if __name__ == "__main__":
    main()
