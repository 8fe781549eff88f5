"""Random models of older opsets, with local functions and inputs that have defaults, by every backend.

See `grown_sources.py`. A sample of seeds by default, 2,000 with DOVETAIL_SLOW=1.
"""

import os

import pytest

from .grown_sources import grown_source
from .grown_trial import CONFIGURATIONS, Truth, trial

SLOW = os.environ.get("DOVETAIL_SLOW") == "1"
SEEDS = range(2000 if SLOW else 36)


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_results_are_right_or_refused(seed, plugins, tmp_path):
    configuration = list(CONFIGURATIONS)[seed % len(CONFIGURATIONS)]
    outcome = trial(Truth(grown_source(seed)), configuration, plugins, tmp_path)
    assert outcome.right, f"seed {seed}, {configuration}: {outcome}"


def test_the_generator_reaches_what_it_is_for():
    made = [grown_source(seed) for seed in range(100)]
    assert frozenset({"old", "function", "default", "open", "bodies"}) <= frozenset().union(
        *(one.kinds for one in made)
    )
    assert {one.model.opset_import[0].version for one in made} >= {7, 8, 9, 10, 11, 12, 18}
    operators = {node.op_type for one in made for held in (one.model.graph, *one.model.functions) for node in held.node}
    assert {"Upsample", "Resize", "Softmax", "GroupNormalization", "Slice", "Clip", "Pad", "Split"} <= operators
