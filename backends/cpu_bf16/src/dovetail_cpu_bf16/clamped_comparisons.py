"""Comparisons of integers, such as the masks `Range(N) < lengths` and `Range(N) <= positions`, made exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.ir import dtype_of
from dovetail_transforms import Fusion, Rewrite, RewriteOutcome

from dovetail_cpu_bf16.integer_bounds import bounds_of, fits

if TYPE_CHECKING:
    import onnx_ir as ir

_COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_LEAST, _LARGEST = -(2**31), 2**31 - 1
_INT32, _INT64 = 6, 7  # onnx.TensorProto
_FLOAT_BITS = 24  # of the significand of float32


def _why_not_clamped(node: ir.Node) -> str:
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


def _why_not_subtracted(node: ir.Node) -> str:
    """Return why a comparison is not made of a difference; empty if it is."""
    inputs = [value for value in node.inputs if value is not None and value.dtype in (_INT32, _INT64)]
    if len(inputs) != 2:
        return "it does not compare integers"
    if any(fits(value, _FLOAT_BITS) for value in inputs):
        return "one input is exact in float32, and rounding the other keeps their order"
    left, right = map(bounds_of, inputs)
    inside = left.low - right.high >= _LEAST and left.high - right.low <= _LARGEST
    return "" if inside else "the difference may exceed 32 bits"


def _rewrites(operator: str) -> tuple[Rewrite, ...]:
    def pattern(op: Any, x: Any, y: Any) -> Any:
        return op.any_of(operator)(x, y)

    def clamped(op: Any, node: ir.Node, x: ir.Value, y: ir.Value) -> ir.Value:
        import numpy as np
        import onnx_ir as ir

        low = op.constant(ir.tensor(np.int64(_LEAST)), "least")
        high = op.constant(ir.tensor(np.int64(_LARGEST)), "largest")
        inputs = [value if fits(value) else op.Clip(value, low, high) for value in (x, y)]
        return op.like(node, *inputs)

    def subtracted(op: Any, node: ir.Node, x: ir.Value, y: ir.Value) -> ir.Value:
        import numpy as np
        import onnx_ir as ir

        zero = op.constant(ir.tensor(np.array(0, dtype_of(x).numpy())), "zero")
        return op.like(node, op.Sub(x, y), zero)

    return (
        Rewrite("clamp-comparisons", pattern, clamped, _why_not_clamped),
        Rewrite("clamp-comparisons", pattern, subtracted, _why_not_subtracted),
    )


class ClampComparisons(Fusion):
    """Compare integers exactly although OpenVINO computes them in 32 bits, and rounds them to float32 to compare.

    `i < n`, where `i` is an index or an extent and `n` any 64-bit integer, becomes `i < clip(n, -2^31, 2^31 - 1)`: the
    limit `wide_integers: false` would keep lengths that the model is given on the host, and with them the mask that is
    compared with each index. Clamping costs as much as `n` is long; it is done on the host, and the comparison is part
    of the region. `i <= j`, where both may exceed 24 bits, becomes `i - j <= 0`, as in masks of open length.
    """

    name, operator, opset = "clamp-comparisons", "Less", 12
    general = False
    rewrites = tuple(rewrite for operator in _COMPARISONS for rewrite in _rewrites(operator))

    def made(self, outcome: RewriteOutcome) -> ir.Node:
        """Return the comparison."""
        return outcome.nodes[-1]
