"""Operators of ONNX Runtime, written out: each node computes what its kernel computes, and has a type before.

float32 within 1e-5 of the largest value, float16 and bfloat16 within rounding. Operators without a kernel on CPUs are
compared with a formula in the cases. By default a sample runs; `--all-rows` runs all of them.
"""

import pytest

from .decomposing import assert_same
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


@pytest.mark.generated(one_of=25)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_the_same(case):
    assert_same(case)
