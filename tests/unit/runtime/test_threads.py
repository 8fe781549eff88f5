"""One compiled model, called from four threads at once: every answer belongs to its caller."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.plugin import RegionModel
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_host.reference import ReferenceEngine

from .models import parse

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
THREADS = 4
CALLS = 10_000 if os.environ.get("DOVETAIL_SLOW") else 1_500


def test_every_answer_belongs_to_its_caller():
    images = np.load(DIGITS / "test.npz")["image"]
    compiled = dovetail.compile(DIGITS / "digits.onnx", ["cpu-bf16"], verify=False)
    answers = [compiled.run({"image": image[None]})["probabilities"] for image in images]

    def call(number):
        index = number % len(images)
        return np.array_equal(compiled.run({"image": images[index][None]})["probabilities"], answers[index])

    with ThreadPoolExecutor(THREADS) as threads:
        right = list(threads.map(call, range(CALLS)))
    assert right.count(False) == 0


@pytest.mark.parametrize(
    ("extent", "options", "spins"),
    [
        (4, {}, True),
        (4, {"spin": False}, False),
        (1 << 20, {"spin": False}, True),
        (1 << 20, {"spin": False, "share_weights": True}, False),
    ],
    ids=["alone", "small, beside others", "large, beside others", "a few times"],
)
def test_threads_of_a_small_session_beside_others_never_spin(extent, options, spins):
    """They would for 15 ms from the creation of the session on, which is more than it computes."""
    model = parse(f"g (float[{extent}] x) => (float[{extent}] y) {{ y = Relu(x) }}")
    settings = OnnxRuntimeCpu().load(RegionModel(model), options).native.get_session_options()
    try:
        spinning = settings.get_session_config_entry("session.intra_op.allow_spinning")
    except RuntimeError:  # there is no such entry
        spinning = "1"
    assert (spinning == "1") == spins


@pytest.mark.parametrize("engine", [OpenVinoCpu(), OnnxRuntimeCpu(), ReferenceEngine()], ids=lambda engine: engine.name)
def test_what_was_executed_may_be_asked_meanwhile(engine):
    """With a profile, which ends when it is asked for."""
    text = """g (float[N,8] x, float k) => (float[N,8] y) {
        a = Mul(x, k) b = Softmax(a) c = Add(b, x) y = Relu(c) }"""
    session = engine.load(RegionModel(parse(text)), {"profile": True})
    rows = [np.full((1 + number % 3, 8), number, np.float32) for number in range(200)]
    factor = np.array(0.5, np.float32)

    def call(number):
        if number % 20 == 5:
            return len(session.executed()) == 4
        return np.allclose(session.run({"x": rows[number], "k": factor})["y"], number + 1 / 8, rtol=1e-4)

    with ThreadPoolExecutor(THREADS) as threads:
        assert all(threads.map(call, range(len(rows))))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failed_call_leaves_the_others_alone(threads):
    """The request that failed is not used again. On one thread, OpenVINO itself would return any numbers."""
    text = "g (float[N,M] x) => (float[2,6] y) { s = Constant<value = int64[2] {2, 6}>() y = Reshape(x, s) }"
    session = OpenVinoCpu().load(RegionModel(parse(text)), {"threads": threads})
    for _ in range(2):
        with pytest.raises(dovetail.DovetailError, match="openvino-cpu"):
            session.run({"x": np.ones((5, 5), np.float32)})
        assert session.run({"x": np.ones((3, 4), np.float32)})["y"].tolist() == [[1] * 6] * 2


def test_a_large_weight_and_a_shape_that_does_not_fit_it_on_one_thread():
    numbers = ", ".join("1" for _ in range(40 * 40))
    text = f"g (float[N,M] x) => (float[N,40] y) <float[40,40] w = {{{numbers}}}> {{ r = Relu(x) y = MatMul(r, w) }}"
    session = OpenVinoCpu().load(RegionModel(parse(text)), {"threads": 1})
    with pytest.raises(dovetail.DovetailError, match="openvino-cpu"):
        session.run({"x": np.ones((2, 30), np.float32)})
    assert session.run({"x": np.ones((2, 40), np.float32)})["y"].tolist() == [[40] * 40] * 2


def test_results_are_copies():
    session = OpenVinoCpu().load(RegionModel(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")), {"streams": 2})
    first = session.run({"x": np.ones(2, np.float32)})["y"]
    first[:] = 7
    assert session.run({"x": np.zeros(2, np.float32)})["y"].tolist() == [0, 0]
