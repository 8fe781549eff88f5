"""Damaged models end in a right result or in one clear message; see `mutants.py` and `mutant_trial.py`.

A sample by default, in this process; `python bench/mutants.py` tries thousands, each worker in a process of its own.
"""

import os

import pytest

from .mutant_bases import BASES
from .mutant_trial import trial
from .mutants import Mutant, mutant, original

SLOW = os.environ.get("DOVETAIL_SLOW") == "1"
GROUPS = 10
SEEDS = range(5000 if SLOW else 150)


@pytest.mark.generated
@pytest.mark.parametrize("base", sorted(BASES))
def test_undamaged_models_are_right(tmp_path, base):
    assert trial(Mutant(0, base, original(base), ()), tmp_path).kind == "same result"


@pytest.mark.generated(one_of=12)
@pytest.mark.parametrize("group", range(GROUPS))
def test_mutants_are_right_or_refused(tmp_path, group):
    for seed in SEEDS[group::GROUPS]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        made = mutant(seed)
        outcome = trial(made, folder, "cpu-bf16" if seed % 4 == 0 else "host")
        assert outcome.right, f"seed {seed}: {made.base} with {made.changes}: {outcome}"


# Mutants that went wrong once, by seed: what they were is said by `mutant(seed)`.
@pytest.mark.parametrize(
    "seed", [412, 631, 1316, 1508, 2026, 11115, 11791, 12197, 12931, 23785, 40397, 80363, 81737, 110009]
)
def test_mutants_that_went_wrong_once(tmp_path, seed):
    assert trial(mutant(seed), tmp_path).right


def test_a_seed_always_makes_the_same_mutant():
    assert mutant(77) == mutant(77) != mutant(78)
