"""Lowering rules, one small function per operator, grouped by family.

A rule gets the operator and the emitter. It returns the value of the only result, or a tuple with one entry per result,
with None for a result that inference never reads; a list result is a list of values. A rule raises `NotLowered` with
the reason if ONNX has no equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.op import PdOp

__all__ = ["Rule", "rules"]

Rule = Callable[["PdOp", "GraphEmitter"], Any]


@cache
def rules() -> Mapping[str, Rule]:
    """Return the rules of all families by operator."""
    from dovetail_paddle.lowering.rules import (
        activation,
        control_flow,
        convolution,
        creation,
        decoding,
        detection,
        elementwise,
        indexing,
        layout,
        linear,
        logic,
        norm,
        proposals,
        quantize,
        recurrent,
        reduction,
        resize,
        shape,
        signal,
        sorting,
        windows,
        writing,
    )

    families = (
        activation, control_flow, convolution, creation, decoding, detection, elementwise, indexing, layout, linear,
        logic, norm, proposals, quantize, recurrent, reduction, resize, shape, signal, sorting, windows, writing,
    )  # fmt: skip
    return {name: rule for family in families for name, rule in family.RULES.items()}
