"""A third party's operators: installed as any distribution is, and used like ONNX's own from opening to running."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

VENDOR = Path(__file__).parents[2] / "example_operators"
FILE = VENDOR / "src" / "dovetail_acme_operators" / "acme_ops.yaml"

NET = """<ir_version: 8, opset_import: ["": 17, "acme.vision": 1]>
  camera (uint8[1,3,8,8] image, int16[2,6] counts) => (float[1,4,8,8] seen, int16[2,6] swapped)
  <float[4,3,3,3] w = {W}, float[4,4,1,1] v = {V}> {
    [top] t = acme.vision.top_bits <count = 6> (image)
    [cast] f = Cast <to = 1> (t)
    [conv] c = Conv <pads = [1, 1, 1, 1]> (f, w)
    [clip] s = acme.vision.soft_clip <limit = 50.0> (c)
    [last] seen = Conv (s, v)
    [swap] swapped = acme.vision.swap_bytes (counts)
  }"""


def numbers(count, seed):
    return "{" + ", ".join(map(str, np.random.default_rng(seed).normal(0, 0.2, count).round(3))) + "}"


@pytest.fixture(scope="module")
def site(pip_installed):
    return str(pip_installed(VENDOR))


@pytest.fixture
def with_vendor(dovetail, site, tmp_path):
    """Run `dovetail ARGUMENTS` in a folder with `net.txt` and `data.npz`, where the distribution is installed too."""
    (tmp_path / "net.txt").write_text(NET.replace("{W}", numbers(108, 0)).replace("{V}", numbers(16, 1)))
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (16, 1, 3, 8, 8), np.uint8)
    (tmp_path / "data").mkdir()
    for index, image in enumerate(images):
        counts = rng.integers(-999, 999, (2, 6), np.int16)
        np.savez(tmp_path / "data" / f"{index}.npz", image=image, counts=counts)

    def run(*arguments, code=0):
        done = dovetail(*arguments, PYTHONPATH=site)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def test_its_file_is_checked(with_vendor):
    said = with_vendor("check", FILE)
    for line in ("soft_clip", "top_bits", "swap_bytes", "soft_clip_grad", "valid"):
        assert line in said


@pytest.mark.generated
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8", "gpu-fp16", "ppl-int8:strategy=conservative", "bpu-int8"])
def test_a_model_is_compiled_verified_and_run(with_vendor, tmp_path, backend):
    said = with_vendor("compile", "net.txt", "--backend", backend, "--data", "data", "-o", "out", "--json")
    document = json.loads(said)
    outputs = {one["name"]: one["snr_db"] for one in document["verification"]["outputs"]}
    assert outputs["swapped"] in (None, "inf") and outputs["seen"] > 25
    assert any(row["operator"].startswith("Conv") and row["backend"] != "host" for row in document["placements"])
    with_vendor("run", "out", "--data", "data/0.npz", "-o", "results.npz")
    given = np.load(tmp_path / "data" / "0.npz")
    assert np.array_equal(np.load(tmp_path / "results.npz")["swapped"], given["counts"].byteswap())


@pytest.mark.slow
def test_the_conformance_suite_runs_its_operators(site, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "backend: cpu-bf16\nrelaxed:\n  - operators: [acme.vision::soft_clip]\n    tolerance: 0.001\n    why: Tanh\n"
    )
    asked = ["--dovetail-backend", "cpu-bf16", "--dovetail-suite", "operators", "--dovetail-lists", "mine.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *asked],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": site},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed, 3 skipped" in done.stdout  # the others are kernels of the host, on the host


def test_explain_says_which_kernel_computes_a_node(with_vendor):
    with_vendor("compile", "net.txt", "--backend", "cpu-bf16", "-o", "out")
    said = with_vendor("explain", "out", "swap")
    assert "kernel 'acme-swap-bytes' of dovetail-acme-operators computes it, <cpu, any, int16>" in said


def test_a_composite_is_what_it_is_made_of_elsewhere(with_vendor, tmp_path):
    with_vendor("compile", "net.txt", "--backend", "cpu-bf16", "-o", "out")
    operators = {node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node}
    assert "Tanh" in operators and "soft_clip" not in operators and {"top_bits", "swap_bytes"} <= operators


def test_what_its_functions_refuse_names_the_node(with_vendor, tmp_path):
    text = (tmp_path / "net.txt").read_text().replace("swap_bytes (counts)", "swap_bytes <rows = 1> (flat)")
    text = text.replace("[top]", "one = Constant <value_ints = [-1]> () flat = Reshape (counts, one) [top]")
    (tmp_path / "net.txt").write_text(text.replace("int16[2,6] swapped", "int16[n,m] swapped"))
    said = with_vendor("compile", "net.txt", "--backend", "cpu-bf16", "-o", "out", code=1)
    assert "node 'swap': acme.vision::swap_bytes (acme_ops.yaml:22)" in said
    assert "a tensor of one axis has no rows" in said
