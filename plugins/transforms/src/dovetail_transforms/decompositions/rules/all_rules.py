"""All decompositions, by operator with its domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dovetail_transforms.decompositions.formula import Formula
from dovetail_transforms.decompositions.rules import (
    activations,
    attention,
    experts,
    grouped_attention,
    norms,
    products,
    quantized,
    rotary,
    states,
    weights,
)

FAMILIES = (norms, rotary, attention, grouped_attention, activations, products, weights, experts, quantized, states)

RULES: Mapping[str, Callable[[Formula], Any]] = {
    operator: rule for family in FAMILIES for operator, rule in family.RULES.items()
}
