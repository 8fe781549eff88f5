"""Casts of 64-bit integers, such as those of an attention mask, made before the integers are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_transforms import Fusion, Rewrite, RewriteOutcome

from dovetail_cpu_bf16.integer_bounds import fits

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import FreshNames, Model

# Gather is left out: it may take few of many integers, all of which would be cast.
_MOVERS = ("Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze")
_INT64, _UINT64 = 7, 13  # onnx.TensorProto
_MOST_MOVES = 16  # between an integer and its cast; a mask has three


def _why_not(node: ir.Node, moved: ir.Node) -> str:
    source = moved.inputs[0]
    if source is None or source.dtype not in (_INT64, _UINT64) or node.attributes.get_int("to", 0) in (_INT64, _UINT64):
        return "it does not cast 64-bit integers to a narrower type"
    return "its integers fit in 32 bits" if fits(source) else ""


def _early(op: Any, node: ir.Node, moved: ir.Node) -> ir.Value:
    cast = op.like(node, moved.inputs[0])
    op.nodes[-1].name = None  # the name belongs to what computes the result
    return op.like(moved, cast, *moved.inputs[1:])


class EarlyCasts(Fusion):
    """`Cast(Expand(Unsqueeze(mask)))` as `Expand(Unsqueeze(Cast(mask)))`, where `mask` is any 64-bit integer.

    OpenVINO computes 64-bit integers in 32 bits, so the limit `wide_integers: false` keeps them on the host until they
    have a narrower type. Moving and casting commute; with the cast first, only the cast is on the host, and fewer bytes
    are moved.
    """

    name, operator, opset = "early-casts", "Cast", 13
    general = False
    rewrites = (Rewrite("early-casts", lambda op: op.Cast(op.any_of(*_MOVERS, called="moved")(...)), _early, _why_not),)

    def fuse(self, model: Model, node: ir.Node, names: FreshNames) -> RewriteOutcome:
        """Move the cast ahead of one mover after the other."""
        outcome = last = super().fuse(model, node, names)
        for _ in range(_MOST_MOVES):
            if last.why or not self.found(last.nodes[0]):
                break
            last = super().fuse(model, last.nodes[0], names)
        return outcome

    def made(self, outcome: RewriteOutcome) -> ir.Node:
        """Return the last of the movers, which is part of the region."""
        return outcome.nodes[-1]
