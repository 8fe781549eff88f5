"""Random graphs over most operators, compiled in six configurations and executed: no result may be wrong.

A sample of seeds by default, 2,000 with DOVETAIL_SLOW=1. The graphs under `random_graphs` are cut down from random ones
that were wrong once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "backends" / "cpu_bf16" / "tools"))

from random_graphs import OPERATORS, random_model  # noqa: E402
from random_graphs.checking import CONFIGURATIONS, check, truth  # noqa: E402
from random_graphs.minimizer import minimized  # noqa: E402
from random_graphs.tolerance import judge  # noqa: E402

SEEDS = range(2000) if os.environ.get("DOVETAIL_SLOW") else range(7, 2000, 200)
WRONG_ONCE = sorted((Path(__file__).parent / "random_graphs").glob("*.onnx"))


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_no_result_is_wrong(seed, plugins):
    known = truth(*random_model(seed))
    outcomes = {name: check(known, name, seed, plugins) for name in CONFIGURATIONS}
    assert outcomes == dict.fromkeys(CONFIGURATIONS, ("ok", ""))


@pytest.mark.generated
@pytest.mark.parametrize("path", WRONG_ONCE, ids=lambda path: path.stem)
def test_what_was_wrong_once(path, plugins):
    known = truth(onnx.load(path), dict(np.load(path.with_suffix(".npz"))))
    outcomes = {name: check(known, name, 0, plugins) for name in CONFIGURATIONS}
    assert outcomes == dict.fromkeys(CONFIGURATIONS, ("ok", ""))


def test_the_generator_covers_more_than_a_hundred_operators():
    found = set()
    for seed in range(120):
        model, _ = random_model(seed)
        found |= {node.op_type for node in model.graph.node}
    assert len(found) > 100
    assert len({name.split()[0] for name in OPERATORS}) > 150


def test_equal_seeds_give_equal_models():
    (one, feeds), (other, again) = random_model(5), random_model(5)
    assert one == other
    assert all(np.array_equal(feeds[name], again[name]) for name in feeds)


def test_the_tolerance_tells_rounding_from_wrong_results():
    known = truth(*random_model(3))
    rounded = {k: v.astype(np.float32) * np.float32(1 + 2**-9) if v.dtype.kind == "f" else v
               for k, v in known.expected.items()}  # fmt: skip
    name = next(name for name, array in known.expected.items() if array.dtype.kind == "f" and array.size > 1)
    right = known.expected[name]
    assert judge(rounded, known.expected, known.noisy).ok
    off_by_one = {**known.expected, name: np.roll(right.reshape(-1), 1).reshape(right.shape) + 1}
    assert "times what rounding explains" in judge(off_by_one, known.expected, known.noisy).why
    assert "has shape" in judge({**known.expected, name: right[None]}, known.expected, known.noisy).why


def test_minimizing_leaves_what_shows_the_defect():
    """Here the presence of an operator stands for a defect."""
    known = truth(*random_model(11))
    wanted = known.model.graph.node[len(known.model.graph.node) // 2].op_type

    def fails(candidate):
        return wanted in {node.op_type for node in candidate.model.graph.node}

    small = minimized(known, fails)
    assert fails(small) and len(small.model.graph.node) <= 3
