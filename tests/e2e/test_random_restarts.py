"""Sessions of random graphs that start again from the user's cache compute bit by bit what the first ones did.

A sample of seeds by default, 200 with DOVETAIL_SLOW=1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dovetail
import onnx
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "backends" / "cpu_bf16" / "tools"))

from random_graphs import random_model  # noqa: E402

SEEDS = range(200) if os.environ.get("DOVETAIL_SLOW") else (6, 13, 26, 79)  # 79 has recurrent layers
REQUESTS = [{"backend": "cpu-bf16"}, {"backend": ["cpu-bf16", "gpu-fp16"]}, {"backend": "cpu-bf16", "high": ["*"]}]


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_they_compute_the_same(seed, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE", str(tmp_path / "cache"))
    model, feeds = random_model(seed)
    onnx.save(model, tmp_path / "model.onnx")
    for request in REQUESTS:
        first, again = (dovetail.InferenceSession(tmp_path / "model.onnx", **request) for _ in range(2))
        for one, other in zip(first.run(None, feeds), again.run(None, feeds), strict=True):
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
