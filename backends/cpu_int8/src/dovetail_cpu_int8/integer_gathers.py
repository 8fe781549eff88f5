"""The `integer-gathers` pass: rows of a quantized embedding, gathered before they become floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import input_of
from dovetail.passes import Pass

from dovetail_cpu_int8.backend import new_nodes

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_transforms import NewNodes


class IntegerGathers(Pass):
    """Gather the integers of rows instead of the floats of a whole table.

    Given:  %w = DequantizeLinear<axis = 0>(%w_int8, %s)   %y = Gather<axis = 0>(%w, %i), with a scale per row
    Result: %y = Mul(Cast(Gather(%w_int8, %i)), Unsqueeze(Gather(%s, %i), -1))

    Otherwise ONNX Runtime dequantizes the table of all tokens whenever it is run. The numbers are the same.
    """

    name = "integer-gathers"
    stage = "quantize"
    for_backend = "cpu-int8"
    requires = ("quantize",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the Gathers of the main graph, the only one with quantized nodes."""
        found = [node for node in self.own_nodes(model) if node.op_type == "Gather"]
        if not found:
            return False
        nodes = new_nodes(model, ctx)
        made = sum(_rewrite(node, nodes, ctx) for node in found)
        if made:
            ctx.count("gathers", made)
            model.touch()
        return made > 0


def _rewrite(node: ir.Node, nodes: NewNodes, ctx: Context) -> bool:
    table, indices = input_of(node, 0), input_of(node, 1)
    dequantized = table.producer()
    if dequantized is None or dequantized.op_type != "DequantizeLinear" or node.attributes.get_int("axis", 0) != 0:
        return False
    integers, scale = input_of(dequantized, 0), input_of(dequantized, 1)
    constant = integers.is_initializer() and scale.is_initializer()
    if not constant or integers.dtype != ir.DataType.INT8 or not _by_row(dequantized, scale):
        return False
    result, name, shape = node.outputs[0], node.name or "gather", indices.shape
    floats = result.dtype or ir.DataType.FLOAT
    rows = nodes.add(node, "Gather", [integers, indices], f"{name}_int8", (ir.DataType.INT8, result.shape), axis=0)
    wide = nodes.add(node, "Cast", [rows], f"{name}_cast", (floats, result.shape), to=int(floats))
    scales = nodes.add(node, "Gather", [scale, indices], f"{name}_scale", (floats, shape), axis=0)
    last = nodes.constant(ir.tensor([-1], dtype=ir.DataType.INT64, name=f"{name}_last"))
    column = None if shape is None else ir.Shape((*shape, 1))
    scales = nodes.add(node, "Unsqueeze", [scales, last], f"{name}_column", (floats, column))
    nodes.replace(node, nodes.add(node, "Mul", [wide, scales], name, (floats, result.shape)))
    nodes.drop_unread(table)
    producer = result.producer()
    what = f"'{integers.name}' is gathered in int8, and its rows become floats"
    ctx.remark("passed", producer or name, "integer-gathers", what)
    return True


def _by_row(dequantized: ir.Node, scale: ir.Value) -> bool:
    """Check whether a scale belongs to each row, and zero points are 0: those of a symmetric format."""
    axis = dequantized.attributes.get_int("axis", 1)
    zero = dequantized.inputs[2] if len(dequantized.inputs) > 2 else None
    symmetric = zero is None or zero.const_value is not None and not zero.const_value.numpy().any()
    return axis == 0 and symmetric and scale.shape is not None and len(scale.shape) == 1
