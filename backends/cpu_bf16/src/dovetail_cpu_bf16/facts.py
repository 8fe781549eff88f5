"""Facts of nodes that the limits of `cpu-bf16` ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.planning.placement import kind_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["int64_data"]

_WIDE = (7, 13)  # onnx.TensorProto.INT64, UINT64
_BITS_THERE = 31
# Constants beyond that are no extents; reading them would cost more than leaving the node to another backend.
_LOOKED_AT = 4096  # elements
_READ_NO_ELEMENTS = frozenset({"Shape", "Size"})


def int64_data(node: ir.Node) -> bool:
    """Whether `node` reads or computes 64-bit integers that OpenVINO, which computes them in 32 bits, may get wrong.

    Shapes and indices are bounded by the extents of tensors, and constants can be looked at.
    """
    if node.op_type in _READ_NO_ELEMENTS:
        return False
    for value in (*node.inputs, *node.outputs):
        if value is not None and value.dtype in _WIDE and _may_be_wide(value):
            return True
    return False


def _may_be_wide(value: ir.Value) -> bool:
    if kind_of(value) != "data":
        return False
    constant = value.const_value if value.is_initializer() else None
    if constant is None:
        return True
    return constant.size > _LOOKED_AT or any(abs(int(number)) >> _BITS_THERE for number in constant.numpy().reshape(-1))
