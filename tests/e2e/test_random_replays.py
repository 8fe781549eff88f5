"""Random graphs by every backend: what is saved loads and computes as it did, and a replay gives the same bytes.

A sample of seeds by default, 2,000 with DOVETAIL_SLOW=1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "backends" / "cpu_bf16" / "tools"))

from random_graphs import random_model  # noqa: E402

SEEDS = range(2000) if os.environ.get("DOVETAIL_SLOW") else range(3, 2000, 285)
BACKENDS = ["cpu-bf16", "cpu-int8", "gpu-fp16", "ppl-int8", "bpu-int8", "tensorrt"]


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


def compiled(model, backend, data, plugins, **request):
    """The compiled model; None if the backend says that it can do nothing with this model."""
    try:
        return dovetail.compile(model, backend, data=data if "int8" in backend else None, plugins=plugins, **request)
    except DovetailError as error:
        if "no node of the model can be on" in error.message:
            return None
        raise


def computation(folder):
    """The saved model without what says how it was asked for."""
    model = onnx.load(folder / "model.onnx")
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_saved_result_computes_the_same_and_a_replay_gives_the_same_bytes(backend, seed, plugins, tmp_path):
    model, feeds = random_model(seed)
    first = compiled(model, backend, feeds, plugins)
    if first is None:
        return
    first.save(tmp_path / "first")
    expected, found = first.run(feeds), dovetail.load(tmp_path / "first", plugins=plugins).run(feeds)
    assert all(
        np.array_equal(found[name], array, equal_nan=array.dtype.kind == "f") for name, array in expected.items()
    )
    again = compiled(model, backend, None, plugins, plan=tmp_path / "first" / "plan.yaml")
    again.save(tmp_path / "again")
    assert computation(tmp_path / "again") == computation(tmp_path / "first")
