"""Random models called again and again, by every backend that runs loops: each call is right, whatever came before.

A sample of seeds by default, 600 with DOVETAIL_SLOW=1; see `grown_calls.py`. Integers and extents are exact, floats are
as far off as the low type makes them. The plan of every solver replays to the same bytes and the same remarks.
"""

import os
import warnings

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError

from .grown import run
from .grown_calls import called
from .grown_trial import DEFECTS, computation

CONFIGURATIONS = {"host": 1e-5, "cpu-bf16": 0.06, "gpu-fp16": 0.02, "cpu-int8": 0.25}
SOLVERS = ("forward", "min-cut", "fixpoint")
SEEDS = range(600 if os.environ.get("DOVETAIL_SLOW") == "1" else 24)


def check(seed, backend, folder):
    """Compile, call, save and replay; what the compiler refuses is named."""
    known = called(seed)
    solver = SOLVERS[seed % len(SOLVERS)]
    data = {"data": list(known.calls)} if backend == "cpu-int8" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            first = dovetail.compile(known.model, [backend], solver=solver, verify=False, **data)
        except DovetailError as error:
            assert not any(word in str(error) for word in DEFECTS), error
            return
        names = [value.name for value in known.model.graph.output]
        for number, feeds in enumerate(known.calls):
            results = first.run(feeds)
            for name, expected in zip(names, run(known.model, feeds)):
                got, where = results[name], f"call {number}, {name}"
                assert got.shape == expected.shape, where
                if expected.dtype.kind == "f":
                    np.testing.assert_allclose(got, expected, atol=CONFIGURATIONS[backend], err_msg=where)
                else:
                    np.testing.assert_array_equal(got, expected, err_msg=where)
        first.save(folder / "first")
        again = dovetail.compile(known.model, plan=folder / "first" / "plan.yaml", verify=False)
        again.save(folder / "again")
        assert computation(folder / "again") == computation(folder / "first")


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_every_call_is_right(seed, tmp_path):
    check(seed, list(CONFIGURATIONS)[seed % len(CONFIGURATIONS)], tmp_path)


def test_two_compilations_say_the_same():
    for seed in (1, 5, 9):
        known = called(seed)
        first, again = (dovetail.compile(known.model, ["cpu-bf16"], verify=False) for _ in range(2))
        assert list(map(str, first.plan.remarks)) == list(map(str, again.plan.remarks))


@pytest.mark.slow
def test_the_generator_reaches_what_it_is_for():
    texts = [str(called(seed).model) for seed in range(60)]
    for operator in ("Loop", "If", "Scan", "Where", "Mod", "Size"):
        assert sum(f'op_type: "{operator}"' in text for text in texts) > 5, operator
