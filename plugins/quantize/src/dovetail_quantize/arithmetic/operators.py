"""Which operators have a definition in integers, and how each is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_quantize.arithmetic.averages import lower_average_pool, lower_global_average, lower_reduced_sum
from dovetail_quantize.arithmetic.functions import FUNCTIONS
from dovetail_quantize.arithmetic.moving import lower_arg, lower_comparison, lower_movement, lower_pad, lower_resize
from dovetail_quantize.arithmetic.products import lower_conv, lower_gemm, lower_matmul
from dovetail_quantize.arithmetic.sums import lower_batch_norm, lower_mul, lower_sum
from dovetail_quantize.arithmetic.tables import lower_function
from dovetail_quantize.arithmetic.transposed import lower_conv_transpose

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.lowering import Lowering


_MOVEMENT = (
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "GlobalMaxPool", "Identity",
    "Max", "MaxPool", "Min", "ReduceMax", "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "TopK", "Transpose", "Unsqueeze",
)  # fmt: skip
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")

LOWERINGS: dict[str, Callable[[Lowering], list[ir.Value]]] = {
    **dict.fromkeys(FUNCTIONS, lower_function),
    **dict.fromkeys(_MOVEMENT, lower_movement),
    **dict.fromkeys(_COMPARISONS, lower_comparison),
    **dict.fromkeys(("Add", "Sub", "Sum"), lower_sum),
    **dict.fromkeys(("ArgMax", "ArgMin"), lower_arg),
    **dict.fromkeys(("ReduceMean", "ReduceSum"), lower_reduced_sum),
    "BatchNormalization": lower_batch_norm,
    "AveragePool": lower_average_pool,
    "Conv": lower_conv,
    "ConvTranspose": lower_conv_transpose,
    "Gemm": lower_gemm,
    "GlobalAveragePool": lower_global_average,
    "MatMul": lower_matmul,
    "Mul": lower_mul,
    "Pad": lower_pad,
    "Resize": lower_resize,
}
"""Operators of the default domain."""
