"""Softmax and its relatives along one axis, by versions that work on all axes from one on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import shape_of

from dovetail_transforms.lowering.node_facts import attribute, rank
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def _pattern(op, x):
    return op.any_of("Hardmax", "LogSoftmax", "Softmax")(x)


def _known_rank(x: ir.Value) -> str:
    return "the rank of its input is unknown" if rank(x) is None else ""


def _axis_to_the_end(op: Replacement, node: ir.Node, x: ir.Value) -> ir.Value:
    last = len(shape_of(x)) - 1
    axis = attribute(node, "axis", -1) % (last + 1)
    order = list(range(last + 1))
    order[axis], order[last] = last, axis  # an exchange is its own inverse
    return op.Transpose(op.like(node, op.Transpose(x, perm=order), axis=last), perm=order)


RULES = (Rewrite("axis-to-the-end", _pattern, _axis_to_the_end, _known_rank),)
