"""All decompositions, by operator with its domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dovetail_transforms.decompositions.formula import Formula
from dovetail_transforms.decompositions.rules import (
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

LOWEST: Mapping[str, int] = dict.fromkeys(quantized.FROM_LOWEST, quantized.LOWEST)
"""The opset from which on an operator is written out, where that is older than for the others."""

ON_REQUEST = frozenset({"com.microsoft.DynamicQuantizeLSTM", "com.microsoft.MoE", "com.microsoft.QMoE"})
"""Operators that are only written out on request: the nodes compute more, or other numbers than a kernel does."""

RULES: Mapping[str, Callable[[Formula], Any]] = {
    operator: rule for family in FAMILIES for operator, rule in family.RULES.items()
}
