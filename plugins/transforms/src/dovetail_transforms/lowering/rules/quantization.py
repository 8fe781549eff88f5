"""Scales and zero points of QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import dtype_of, shape_of

from dovetail_transforms.lowering.node_facts import UNRELATED, attribute, constant, extents, required_constant
from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


def _pattern(op, x, scale, zero=None):
    return op.any_of("DequantizeLinear", "QuantizeLinear")(x, scale, zero)


def _one_element(scale: ir.Value, zero: ir.Value | None) -> str:
    known = constant(scale)
    if known is None:
        return "its scale may be one per axis"
    if known.size != 1:
        return f"it has {known.size} scales"
    return "" if zero is None or constant(zero) is not None else "its zero point is not constant"


def _scalars(op: Replacement, node: ir.Node, x: ir.Value, scale: ir.Value, zero: ir.Value | None) -> ir.Value:
    import onnx_ir as ir

    def scalar(value: ir.Value, what: str) -> ir.Value:
        return op.constant(ir.tensor(required_constant(value).reshape(()), dtype=value.dtype), what)

    return op.like(node, x, scalar(scale, "scale"), *([] if zero is None else [scalar(zero, "zero_point")]))


def _zero_point_check(node: ir.Node, scale: ir.Value, zero: ir.Value | None) -> str:
    if attribute(node, "block_size", 0):
        return "it has a scale per block"
    if zero is None:
        known = extents(scale)
        return "" if known is not None and None not in known else "the shape of its scale is open"
    wanted = attribute(node, "output_dtype", 0)
    return "" if int(dtype_of(zero)) == wanted else UNRELATED


def _zero_point(op: Replacement, node: ir.Node, x: ir.Value, scale: ir.Value, zero: ir.Value | None) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    if zero is None:
        dtype = ir.DataType(attribute(node, "output_dtype"))
        zeros = np.zeros(shape_of(scale).numpy(), dtype.numpy())
        zero = op.constant(ir.tensor(zeros, dtype=dtype), "zero_point")
    return op.like(node, x, scale, zero, output_dtype=None, block_size=None)


RULES = (
    Rewrite("scale-of-one-element", _pattern, _scalars, _one_element),
    Rewrite("zero-point", _pattern, _zero_point, _zero_point_check),
)
