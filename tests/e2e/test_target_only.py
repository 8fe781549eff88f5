"""`--target-only`: a result for a device that is not here is written, and measured as far as the host can run it."""

from pathlib import Path

import dovetail as api
import numpy as np
import pytest
from dovetail.errors import DovetailError

ROOT = Path(__file__).parents[2]
DIGITS, SAMPLES = ROOT / "examples/digits/digits.onnx", ROOT / "examples/digits/test.npz"
FILE = """backend: away-npu
device: npu
opset: 13..26
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops:
  Conv, Relu, Gemm: {types: f, policy: lower}
place: {strategy: autocast}
emit: {engines: [away-runtime]}
"""
NOTE = (
    "away-npu has no engine here: onnxruntime-cpu computes its regions from the compiled model, not as the device does"
)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("away.backend.yaml").write_text(FILE)
    return "./away.backend.yaml"


def test_the_host_computes_what_has_no_engine_here_and_a_note_says_so(dovetail, file):
    done = dovetail(
        "compile", DIGITS, "--backend", file, "--target-only", "--data", SAMPLES, "--min-snr", "60", "-o", "out"
    )
    assert done.returncode == 0, done.stderr
    assert f"note: {NOTE}" in done.stdout and "away-npu 9/" in done.stdout and "SNR" in done.stdout
    ran = dovetail("run", "out", "--data", SAMPLES)  # a result that says it is for elsewhere is run in the same way
    assert ran.returncode == 0 and NOTE in ran.stdout


def test_without_it_the_missing_engine_is_an_error_that_names_the_option(dovetail, file):
    done = dovetail("compile", DIGITS, "--backend", file, "-o", "out")
    assert done.returncode == 1 and not Path("out").exists()
    assert "backend 'away-npu' has no engine here (away-runtime: unknown engine 'away-runtime')" in done.stderr
    assert "--target-only compiles without it" in done.stderr


def test_it_contradicts_trying_engines(dovetail, file):
    done = dovetail("compile", DIGITS, "--backend", file, "--target-only", "--try-engines")
    assert done.returncode == 2 and "--target-only tries no engines" in done.stderr


@pytest.mark.slow
def test_in_python_and_beside_a_backend_that_runs_here(file):
    compiled = api.compile(DIGITS, [file, "cpu-bf16"], target_only=True)
    outputs = compiled.run({"image": np.load(SAMPLES)["image"][:4]})
    engines = {runner.backend: runner.engine for runner in compiled.regions}
    assert (engines["away-npu"], engines["cpu-bf16"]) == ("onnxruntime-cpu", "openvino-cpu") and len(outputs) == 1
    assert compiled.notes().count(NOTE) == 1
    with pytest.raises(DovetailError, match="no engine here"):
        api.compile(DIGITS, [file, "cpu-bf16"], target_only=False)
