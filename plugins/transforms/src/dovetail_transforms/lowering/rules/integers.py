"""Bounds of integers, by comparing and selecting."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from dovetail.ir.required import input_of

from dovetail_transforms.lowering.node_facts import UNRELATED
from dovetail_transforms.lowering.rules.activations import scalar
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def _larger(op: Replacement, one: ir.Value, other: ir.Value) -> ir.Value:
    return op.Where(op.Greater(one, other), one, other)


def _smaller(op: Replacement, one: ir.Value, other: ir.Value) -> ir.Value:
    return op.Where(op.Less(one, other), one, other)


def _integers(node: ir.Node) -> str:
    first = input_of(node, 0)
    # Of floats, NaNs would be lost.
    return "" if first.dtype is not None and first.dtype.is_integer() else UNRELATED


def _max(op: Replacement, node: ir.Node) -> ir.Value:
    return _folded(op, node, _larger)


def _min(op: Replacement, node: ir.Node) -> ir.Value:
    return _folded(op, node, _smaller)


def _folded(op: Replacement, node: ir.Node, choose) -> ir.Value:
    first, *rest = [value for value in node.inputs if value is not None]
    return reduce(lambda one, other: choose(op, one, other), rest, first) if rest else op.Identity(first)


def _clip(op: Replacement, x: ir.Value, low: ir.Value | None, high: ir.Value | None) -> ir.Value:
    bounded = x if low is None else _larger(op, x, low)
    bounded = bounded if high is None else _smaller(op, bounded, high)
    return op.Identity(x) if bounded is x else bounded


def _relu(op: Replacement, x: ir.Value) -> ir.Value:
    return op.Max(x, scalar(op, 0, x, "zero"))


RULES = (
    Rewrite("integer-max", lambda op: op.Max(...), _max, _integers),
    Rewrite("integer-min", lambda op: op.Min(...), _min, _integers),
    Rewrite("integer-clip", lambda op, x, low=None, high=None: op.Clip(x, low, high), _clip, _integers),
    Rewrite("integer-relu", lambda op, x: op.Relu(x), _relu, _integers),
)
