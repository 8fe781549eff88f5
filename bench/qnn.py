"""qnn on the emulator of Qualcomm's HTP beside ONNX Runtime's own quantizer with its settings for QNN.

    python bench/qnn.py --wheels FOLDER [--nets NAME ...] [--samples 16]

Each row is a net with real inputs (`trained_nets/`) or the digits, whose extents are those of its first input. Both
candidates calibrate on the same inputs, and both results run on the execution provider: SNR in dB of the worst float
output over the other inputs, against ONNX Runtime in float32. `own` is `get_qnn_qdq_config` with `per_channel`, after
`qnn_preprocess_model`; what it leaves to the CPU, or a message where it fails, stands beside it. Needs onnxruntime-qnn;
for the nets also pillow and scipy.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime as ort
from dovetail_onnxruntime_ep import sessions
from dovetail_onnxruntime_ep.engines import Qnn
from measure import table
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model
from onnxruntime.tools.onnx_model_utils import make_input_shape_fixed

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
TYPES = {"uint8": QuantType.QUInt8, "uint16": QuantType.QUInt16}
Feeds = dict[str, np.ndarray]


class Reader(CalibrationDataReader):
    """Samples for ONNX Runtime's quantizer."""

    def __init__(self, feeds: Sequence[Feeds]):
        self._feeds = iter(feeds)

    def get_next(self) -> Feeds | None:
        """Return the next sample; None after the last one."""
        return next(self._feeds, None)


def own(model: Path, data: Sequence[Feeds], activations: str) -> tuple[Callable, str]:
    """Quantize as ONNX Runtime does for QNN, and load the result on the provider."""
    with tempfile.TemporaryDirectory() as folder:
        return _own(model, data, activations, Path(folder))


def _own(model: Path, data: Sequence[Feeds], activations: str, folder: Path) -> tuple[Callable, str]:
    fixed, prepared, made = (folder / f"{name}.onnx" for name in ("fixed", "prepared", "made"))
    proto = onnx.load(model)
    del proto.metadata_props[:]  # the preprocessing fails on them (1.32)
    for value in proto.graph.input:
        if value.name in data[0]:
            make_input_shape_fixed(proto.graph, value.name, list(data[0][value.name].shape))
    onnx.save(onnx.shape_inference.infer_shapes(proto), fixed)
    source = prepared if qnn_preprocess_model(str(fixed), str(prepared)) else fixed
    config = get_qnn_qdq_config(
        str(source), Reader(data), activation_type=TYPES[activations], weight_type=QuantType.QInt8, per_channel=True
    )
    quantize(str(source), str(made), config)
    nodes = [node.name for node in onnx.load(made).graph.node]
    left = ""
    provider = Qnn.provider
    about = {"provider": provider.name, "library": provider.library, "model": made.read_bytes(), "entries": {}}
    try:
        loaded = sessions.load(**about, options=dict(provider.options), names=nodes)
    except sessions.ProviderError as error:
        left = f"{len(error.nodes)} on the CPU" if error.nodes else ""
        loaded = sessions.load(**about, options=dict(provider.options), names=[])
    return lambda feeds: sessions.run(loaded, feeds), left


def ours(model: Path, data: Sequence[Feeds], activations: str) -> tuple[Callable, str]:
    """Compile for qnn."""
    shapes = {name: list(array.shape) for name, array in data[0].items()}
    backend = f"qnn:activations={activations}"
    compiled = dovetail.compile(model, backend, data=list(data), fix_shapes=shapes, verify=False)
    return compiled.run, compiled.coverage()


def worst_snr(expected: Sequence[Feeds], found: Sequence[Feeds]) -> float:
    """Return the SNR of the worst float output over all inputs."""
    rated = []
    for name in (name for name, array in expected[0].items() if array.dtype.kind == "f"):
        exact = np.concatenate([one[name].ravel() for one in expected]).astype(np.float64)
        noise = np.concatenate([one[name].ravel() for one in found]) - exact
        rated.append(10 * np.log10((exact**2).sum() / max((noise**2).sum(), 1e-300)))
    return min(rated)


def measured(name: str, model: Path, samples: Sequence[Feeds], count: int) -> list[dict]:
    """Return a row per type of activations."""
    shape = {key: array.shape for key, array in samples[0].items()}
    samples = [one for one in samples if {key: array.shape for key, array in one.items()} == shape]
    data, test = samples[1::2][:count], samples[0::2]
    session = ort.InferenceSession(model)
    names = [value.name for value in session.get_outputs()]
    expected = [dict(zip(names, session.run(names, one))) for one in test]
    rows = []
    for activations in TYPES:
        row = {"net": name, "activations": activations, "data": len(data), "inputs": len(test)}
        for label, make in (("own", own), ("qnn", ours)):
            try:
                run, about = make(model, data, activations)
                row[label] = f"{worst_snr(expected, [run(one) for one in test]):.1f}"
            except Exception as error:  # of the quantizer, or of the provider
                row[label], about = "-", f"{type(error).__name__}: {str(error)[:60]}"
            row[f"{label}: where"] = about
        rows.append(row)
    return rows


def main() -> None:
    """Measure the nets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--nets", nargs="*", default=())
    parser.add_argument("--samples", type=int, default=16)
    options = parser.parse_args()
    images = np.load(DIGITS / "test.npz")["image"]
    rows = measured("digits", DIGITS / "digits.onnx", [{"image": image[np.newaxis]} for image in images], 180)
    if options.nets:
        from trained_nets.catalog import NETS
        from trained_nets.wheels import Wheels

        wheels = Wheels(options.wheels)
        for net in (net for net in NETS if net.name in options.nets):
            samples = [feeds for stream in net.streams(wheels) for feeds in stream]
            rows += measured(net.name, wheels.file(net.wheel, net.path), samples, options.samples)
    table(rows)


if __name__ == "__main__":
    main()
