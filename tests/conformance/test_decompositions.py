"""Operators of ONNX Runtime, written out: each node computes what its kernel computes, and has a type before.

float32 within 1e-5 of the largest value, float16 and bfloat16 within rounding. Operators without a kernel on CPUs are
compared with a formula in the cases. By default a sample runs; `--all-rows` runs all of them.
"""

import itertools

import pytest

from .decomposing import assert_same, assert_same_without
from .decomposition_cases import (
    activations,
    attention,
    experts,
    former,
    grouped_attention,
    norms,
    packed_attention,
    products,
    projections,
    quantized,
    rotary,
    states,
    weights,
)

FAMILIES = (
    norms,
    rotary,
    attention,
    grouped_attention,
    packed_attention,
    activations,
    products,
    weights,
    projections,
    experts,
    quantized,
    states,
    former,
)
CASES = [case for family in FAMILIES for case in family.CASES]


@pytest.mark.generated(one_of=40, others=16)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_the_same(case):
    assert_same(case)


def subsets_of_outputs():
    """Each choice of outputs that are read, if not all that a case reads: one case for each operator and choice."""
    found = {}
    for case in CASES:
        for count in range(1, len(case.outputs)):
            for read in itertools.combinations(case.outputs, count):
                found.setdefault((case.domain, case.op_type, read), case)
    return [pytest.param(case, read, id=f"{case}-{'-'.join(read)}") for (*_, read), case in found.items()]


@pytest.mark.generated(one_of=8, others=3)
@pytest.mark.parametrize("unread", ["", "unread_"], ids=["left out", "unread"])
@pytest.mark.parametrize(("case", "read"), subsets_of_outputs())
def test_outputs_that_nothing_reads(case, read, unread):
    assert_same_without(case, read, unread)
