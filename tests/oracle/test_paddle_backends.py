"""Programs of Paddle compiled for the backends, with their inputs as data: nearly what Paddle computed comes out.

A sample by default, every program for every backend with DOVETAIL_SLOW=1.
"""

import os
import zipfile
from pathlib import Path

import dovetail
import numpy as np
import pytest

from .paddle_files import ARCHIVE, PROGRAMS, nets, recorded

# The least signal-to-noise ratio of an output, in dB.
BACKENDS = {"gpu-fp16": 35, "cpu-bf16": 20, "bpu-int8": 10, "ppl-int8": 10, "tensorrt": 35}
DETECTION = 6  # columns of what a non-maximum suppression keeps: class, score and box
NAMES = [
    *(str(path.relative_to(PROGRAMS)) for path in sorted([*PROGRAMS.glob("*/*.pdmodel"), *PROGRAMS.glob("*/*.json")])),
    *(name for name in nets() if "beyond_onnx" not in name),
]
CASES = [(name, backend) for name in NAMES for backend in BACKENDS]
if os.environ.get("DOVETAIL_SLOW") != "1":
    CASES = CASES[3::37]


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("nets")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(found)
    return found


@pytest.mark.generated
@pytest.mark.parametrize(("name", "backend"), CASES)
def test_a_program_computes_what_paddle_computed(name, backend, folder, plugins):
    path = PROGRAMS / name if (PROGRAMS / name).exists() else folder / name
    inputs, expected = recorded(path)
    options = {}
    if backend == "bpu-int8":  # takes fixed extents, and a model of which it can compute something
        backend, options = ["bpu-int8", "host"], {"fix_shapes": {key: array.shape for key, array in inputs.items()}}
        floor = BACKENDS["bpu-int8"]
    else:
        floor = BACKENDS[backend]
    compiled = dovetail.compile(path, backend, data=inputs, verify=False, plugins=plugins, **options)
    found = list(compiled.run({key: inputs[key] for key in compiled.model.interface()[0]}).values())
    assert [(array.shape, array.dtype) for array in found] == [(array.shape, array.dtype) for array in expected]
    for at, (array, wanted) in enumerate(zip(found, expected, strict=True)):
        if wanted.dtype.kind == "f":
            detections = wanted.ndim == 2 and wanted.shape[1] == DETECTION
            assert decibels(array, wanted) >= floor or detections and share_found(array, wanted) >= 0.75, at
        else:
            assert np.mean(array == wanted) >= 0.95, at
    verification = dovetail.verify(path, compiled, inputs, plugins=plugins)
    assert len(verification.outputs) == len(expected)


def share_found(array, wanted):
    """The share of detections that were found: of two with nearly the same score, rounding decides which is kept."""
    scale = np.abs(wanted).max(axis=0) + 1e-6
    distances = np.abs(array[None, :, :] - wanted[:, None, :]) / scale
    return (distances.max(axis=2).min(axis=1) < 0.1).mean()


def decibels(array: np.ndarray, wanted: np.ndarray) -> float:
    """The ratio of the signal to its error, where both are finite."""
    finite = np.isfinite(wanted)
    assert np.array_equal(finite, np.isfinite(array))
    error = np.square(array[finite].astype(float) - wanted[finite]).sum()
    signal = np.square(wanted[finite].astype(float)).sum()
    return np.inf if not error else 10 * np.log10(max(signal, 1e-30) / error)
