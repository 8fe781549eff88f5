"""Activations that exporters write as several operators, and that the vendor's tool computes by one table.

Source: logs of the tool, where SiLU is HzSwish or HzLut, hard swish HzHardSwish, and GELU HzLut, whatever the lists say
of the single operators.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.ir.required import input_of

if TYPE_CHECKING:
    import onnx_ir as ir


def in_swish(node: ir.Node) -> bool:
    """Whether a Sigmoid is a part of `x * sigmoid(x)`: one Mul reads it, and what it reads."""
    reader = _only_reader(node)
    return reader is not None and reader.op_type == "Mul" and node.inputs[0] in reader.inputs


def in_gelu(node: ir.Node) -> bool:
    """Whether an Erf is a part of `x * (1 + erf(x / sqrt(2))) / 2`, with the half before or behind the product."""
    add = _only_reader(node)
    if add is None or add.op_type != "Add" or not any(_number(value) == 1 for value in add.inputs):
        return False
    product = _only_reader(add)
    scaled = input_of(node, 0).producer()
    if product is None or product.op_type != "Mul" or scaled is None or scaled.op_type not in ("Div", "Mul"):
        return False
    root = _number(scaled.inputs[1])
    return root is not None and math.isclose(root if scaled.op_type == "Div" else 1 / root, math.sqrt(2), rel_tol=1e-3)


def scales_by_number(node: ir.Node) -> bool:
    """Whether a Mul multiplies one image, four axes of batch 1, by one constant number that is not zero."""
    if node.op_type != "Mul" or not any(map(_number, node.inputs)):
        return False
    shape = node.outputs[0].shape
    return shape is not None and len(shape) == 4 and shape[0] == 1


def divides_by_number(node: ir.Node) -> bool:
    """Whether a Div divides by one constant number, which is not zero."""
    return node.op_type == "Div" and bool(_number(node.inputs[1]))


def _only_reader(node: ir.Node) -> ir.Node | None:
    value = node.outputs[0]
    uses = value.uses()
    return next(iter(uses))[0] if len(uses) == 1 and not value.is_graph_output() else None


def _number(value: ir.Value | None) -> float | None:
    """The number that a constant of one element holds; None for everything else."""
    if value is None or value.const_value is None or math.prod(value.const_value.shape.numpy()) != 1:
        return None
    return float(value.const_value.numpy().reshape(()))
