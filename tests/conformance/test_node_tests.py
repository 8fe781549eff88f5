"""onnx's node tests and the suite's small nets on every bundled backend, judged by the lists that the backends ship.

A sample by default, and all of them with DOVETAIL_SLOW=1. `pytest --dovetail-backend NAME` runs the same, resumable
and with a table.
"""

import os

import dovetail
import pytest
from dovetail_testing import cases, lists, measure, verdict

BACKENDS = ("cpu-bf16", "cpu-int8", "gpu-fp16", "tensorrt", "ppl-int8", "bpu-int8")
SAMPLE = None if os.environ.get("DOVETAIL_SLOW") else 50
NARROW = {"solver": "fixpoint", "keep_io_types": False}  # as much as can be in the low precision
NARROW_TOLERANCE = 0.02  # of the largest value
NARROW_CASES = SAMPLE and 2 * SAMPLE
# What narrow inputs make of it, beyond the tolerance.
CANCELS = ("test_matmul_1d_3d", "test_tan")


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.fixture(scope="module")
def known(plugins):
    return {backend: lists(backend, plugins.registry) for backend in BACKENDS}


@pytest.mark.generated(one_of=12, others=3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", [*cases("nodes", sample=SAMPLE), *cases("models")], ids=lambda case: case.name)
def test_results_are_as_listed(case, backend, plugins, known):
    found = verdict(measure(case, backend, plugins), known[backend])
    assert found.status != "failed", found.text


@pytest.mark.generated(one_of=12, others=3)
@pytest.mark.parametrize("backend", ["cpu-bf16", "gpu-fp16"])
@pytest.mark.parametrize("case", cases("nodes", sample=NARROW_CASES), ids=lambda case: case.name)
def test_results_are_close_with_narrow_inputs_and_outputs(case, backend, plugins, known):
    found = measure(case, backend, plugins, NARROW)
    listed = known[backend].expectation(case.name, case.operator)
    if listed is not None and listed.kind in ("run_only", "fails") or case.name in CANCELS:
        return
    assert found.outcome != "error", found.problem
    assert not found.problem and found.share <= NARROW_TOLERANCE, found.line()
