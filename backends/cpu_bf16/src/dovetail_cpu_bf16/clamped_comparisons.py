"""Comparisons of 64-bit integers with indices, such as the mask `Range(N) < lengths`, made exact in 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.rewriting import Outcome, Rewrite

from dovetail_cpu_bf16.integer_bounds import bounds_of, fits

if TYPE_CHECKING:
    import onnx_ir as ir

_COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_LEAST, _LARGEST = -(2**31), 2**31 - 1
_INT64 = 7  # onnx.TensorProto.INT64


def _why_not(node: ir.Node) -> str:
    """Return why no input of a comparison may be clamped; empty if one may."""
    inputs = [value for value in node.inputs if value is not None and value.dtype == _INT64]
    if len(inputs) != 2:
        return "it does not compare 64-bit integers"
    wide = [value for value in inputs if not fits(value)]
    if len(wide) != 1:
        return "either both inputs or none may exceed 32 bits"
    other = inputs[1] if wide[0] is inputs[0] else inputs[0]
    if other.const_value is not None:
        return "comparing with a constant costs no more than clamping"
    # A clamped integer equals a limit, so the other input must not reach it.
    bounds = bounds_of(other)
    inside = bounds.low > _LEAST and bounds.high < _LARGEST
    return "" if inside else "the other input may reach the limits of 32 bits"


def _rewrite(operator: str) -> Rewrite:
    def pattern(op: Any, x: Any, y: Any) -> Any:
        return getattr(op, operator)(x, y)

    def clamped(op: Any, node: ir.Node, x: ir.Value, y: ir.Value) -> ir.Value:
        import numpy as np
        import onnx_ir as ir

        low = op.constant(ir.tensor(np.int64(_LEAST)), "least")
        high = op.constant(ir.tensor(np.int64(_LARGEST)), "largest")
        inputs = [value if fits(value) else op.Clip(value, low, high) for value in (x, y)]
        return op.like(node, *inputs)

    return Rewrite("clamp-comparisons", pattern, clamped, _why_not)


class ClampComparisons(Fusion):
    """`i < n` as `i < clip(n, -2^31, 2^31 - 1)`, where `i` is an index or an extent and `n` any 64-bit integer.

    OpenVINO computes 64-bit integers in 32 bits, so the limit `wide_integers: false` keeps lengths that the model is
    given on the host, and with them the mask that is compared with each index. Clamping is exact and costs as much as
    `n` is long; it is done on the host, and the comparison is part of the region.
    """

    name, operator, opset = "clamp-comparisons", "Less", 12
    general = False
    rewrites = tuple(map(_rewrite, _COMPARISONS))

    def made(self, outcome: Outcome) -> ir.Node:
        """Return the comparison."""
        return outcome.nodes[-1]
