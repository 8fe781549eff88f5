"""Random graphs by every backend: right, or refused with a reason; saved, loaded and replayed they compute the same.

A sample of seeds by default, 2,000 with DOVETAIL_SLOW=1; see `grown_models.py` and `grown_trial.py`. Each is tried in
one configuration; `python bench/random_graphs.py` tries it in all, in processes of their own.
"""

import os

import pytest

from .grown_models import grown
from .grown_trial import CONFIGURATIONS, Truth, trial

SLOW = os.environ.get("DOVETAIL_SLOW") == "1"
SEEDS = range(2000 if SLOW else 36)


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_results_are_right_or_refused(seed, plugins, tmp_path):
    configuration = list(CONFIGURATIONS)[seed % len(CONFIGURATIONS)]
    outcome = trial(Truth(grown(seed)), configuration, plugins, tmp_path)
    assert outcome.right, f"seed {seed}, {configuration}: {outcome}"


@pytest.mark.generated
@pytest.mark.parametrize(
    ("seed", "configuration"),
    [
        (200713, "bpu-int8"),  # a replay named the conversions of a value with several readers in another order
        (200831, "bpu-int8, gpu-fp16"),  # a Cast of the source was reused for the type that it has no longer
        (201173, "bpu-int8"),  # ONNX Runtime ended the process: a body read what was moved behind a conversion
        (201233, "cpu-bf16, tensorrt"),  # OpenVINO fused slopes per row into a reduction that keeps its axis
    ],
)
def test_what_went_wrong_before(seed, configuration, plugins, tmp_path):
    outcome = trial(Truth(grown(seed)), configuration, plugins, tmp_path)
    assert outcome.right, outcome


def test_equal_seeds_give_equal_models():
    assert grown(4).model == grown(4).model != grown(5).model


@pytest.mark.slow
def test_the_generator_reaches_what_it_is_for():
    made = [grown(seed) for seed in range(150)]
    assert frozenset({"float16", "open", "bodies"}) <= frozenset().union(*(one.kinds for one in made))
    operators = {node.op_type for one in made for node in one.model.graph.node}
    assert len(operators) > 70
    assert {"If", "Loop", "QuantizeLinear", "MatMulInteger", "LSTM", "TopK", "Constant"} <= operators
    assert sum(len(one.model.graph.output) > 1 for one in made) > 75
