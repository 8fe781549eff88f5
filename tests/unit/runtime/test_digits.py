"""The digits example recognizes digits, on every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_host.reference import ReferenceEngine
from dovetail_onnx.opening import open_model
from dovetail_runtime.executor import RegionExecutor

FOLDER = Path(__file__).parents[3] / "examples" / "digits"


@pytest.mark.parametrize("engine", [OnnxRuntimeCpu(), ReferenceEngine(), OpenVinoCpu()], ids=lambda engine: engine.name)
def test_top_1(engine):
    data = np.load(FOLDER / "test.npz")
    outputs = RegionExecutor(open_model(FOLDER / "digits.onnx"), {"host": [engine]}).run({"image": data["image"]})
    assert (outputs["probabilities"].argmax(axis=1) == data["labels"]).mean() >= 0.97
