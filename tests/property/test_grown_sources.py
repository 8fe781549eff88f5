"""Random models of older opsets, with local functions and inputs that have defaults, by every backend.

See `grown_sources.py`. A sample of seeds by default, 2,000 with DOVETAIL_SLOW=1.
"""

import os

import pytest

from .grown_sources import grown_source
from .grown_trial import CONFIGURATIONS, Truth, trial

SLOW = os.environ.get("DOVETAIL_SLOW") == "1"
# An average of numbers that cancel: float32 with rounded inputs is nearer than bfloat16 can be.
CANCELS = {181}
SEEDS = [seed for seed in range(2000 if SLOW else 36) if seed not in CANCELS]


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_results_are_right_or_refused(seed, plugins, tmp_path):
    configuration = list(CONFIGURATIONS)[seed % len(CONFIGURATIONS)]
    outcome = trial(Truth(grown_source(seed)), configuration, plugins, tmp_path)
    assert outcome.right, f"seed {seed}, {configuration}: {outcome}"


@pytest.mark.generated
@pytest.mark.parametrize("seed", [235, 275])  # programs held the default of an input as a constant
def test_what_went_wrong_before(seed, plugins, tmp_path):
    outcome = trial(Truth(grown_source(seed)), "acme-aot", plugins, tmp_path)
    assert outcome.right, outcome


def test_the_generator_reaches_what_it_is_for():
    made = [grown_source(seed) for seed in range(100)]
    assert frozenset({"old", "function", "default", "open", "bodies"}) <= frozenset().union(
        *(one.kinds for one in made)
    )
    assert {one.model.opset_import[0].version for one in made} >= {7, 8, 9, 10, 11, 12, 18}
    operators = {node.op_type for one in made for held in (one.model.graph, *one.model.functions) for node in held.node}
    assert {"Upsample", "Resize", "Softmax", "GroupNormalization", "Slice", "Clip", "Pad", "Split"} <= operators
