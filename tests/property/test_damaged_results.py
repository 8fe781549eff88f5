"""Damaged results, plans and artifacts: a right result or one clear message, and nothing outside is touched.

A sample by default, 600 with DOVETAIL_SLOW=1; see `damaged_results.py` and `damage_trial.py`.
"""

import os
import shutil

import dovetail
import pytest

from .damage_trial import trial
from .damaged_results import REQUESTS, SAMPLES, make

GROUPS = 10
SEEDS = range(600 if os.environ.get("DOVETAIL_SLOW") == "1" else 60)

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes need POSIX")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    make(folder)
    return folder


@pytest.fixture(scope="module")
def expected(bases):
    return {name: dovetail.load(bases / name / "out").run(SAMPLES) for name in REQUESTS}


@pytest.mark.generated
@pytest.mark.parametrize("group", range(GROUPS))
def test_damaged_results_are_right_or_refused(tmp_path, bases, expected, group):
    wrong = []
    for seed in SEEDS[group::GROUPS]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        said = trial(seed, bases, folder, expected)
        if said:
            wrong.append(f"seed {seed}: {said}")
        shutil.rmtree(folder)
    assert not wrong, "\n".join(wrong)
