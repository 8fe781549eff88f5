"""Products whose weight is so thin that integers save less than conversions cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import is_onnx

if TYPE_CHECKING:
    import onnx_ir as ir


_PRODUCTS = frozenset({"Gemm", "MatMul"})
_LEAST = 8  # multiplications per converted number


def is_thin(node: ir.Node) -> bool:
    """Check whether a product has a constant weight that gives too little to multiply.

    A weight of K x N multiplies K * N times for K numbers that are quantized before and N that are dequantized behind.
    The last layer of a regressor (128 x 1) and the first one of a few parameters (6 x 128) round what they read, and no
    kernel is faster for it.
    """
    if node.op_type not in _PRODUCTS or not is_onnx(node):
        return False
    weight = node.inputs[1]
    if weight is None or not weight.is_initializer() or weight.shape is None or len(weight.shape) != 2:
        return False
    k, n = weight.shape.numpy()
    return k * n < _LEAST * (k + n)
