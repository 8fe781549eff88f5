"""Weights of 7 bits, whose products with uint8 are summed exactly on CPUs without VNNI."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


LARGEST = 64
"""The largest integer of a weight of 7 bits: two products of 255 and 64 fit into 16 bits with a sign."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def sums_are_exact(model: Model) -> bool:
    """Check whether no sum of 8-bit products can saturate 16 bits.

    A product of two operands in integers may, unless one is a weight of 7 bits. Weights are read one at a time.
    """
    integers: set[int] = set()  # activations of all 8 bits, and what follows from them but for products
    large: set[int] = set()  # weights with integers beyond 64
    for node in model.nodes():
        read = [id(value) for value in node.inputs if value is not None]
        if node.op_type in _PRODUCTS:
            first, second, *_ = read
            if first in integers and (second in integers or second in large) or first in large and second in integers:
                return False
            continue
        given = [id(value) for value in node.outputs]
        if node.op_type == "DequantizeLinear" and node.inputs[0] is not None:
            weight = node.inputs[0].const_value
            if weight is None:
                integers.update(given)
            elif not _is_small(weight):
                large.update(given)
        else:
            for found in (integers, large):
                if not found.isdisjoint(read):
                    found.update(given)
    return True


def _is_small(weight: ir.TensorProtocol) -> bool:
    if weight.dtype.name not in ("INT8", "UINT8"):
        return True
    return weight.size == 0 or bool(abs(weight.numpy().astype("int16")).max() <= LARGEST)
