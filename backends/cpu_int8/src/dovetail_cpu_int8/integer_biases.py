"""The `integer-biases` pass: biases that are added to quantized MatMuls, in the integers of their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.ir import constant_of, input_of
from dovetail.passes import Pass
from dovetail.plugin import is_onnx

from dovetail_cpu_int8.backend import is_here, new_nodes

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_transforms import NewNodes


_LARGEST = 2**31 - 1


class IntegerBiases(Pass):
    """Store the constant that is added to a quantized MatMul of `cpu-int8` in int32, in the scale of its sums.

    Given:  %y = Add(MatMul(%x, %w), %b), where DequantizeLinear gives %x and %w with the scales s and t
    Result: %y = Add(MatMul(%x, %w), DequantizeLinear(%b_int32, s * t, 0))

    ONNX Runtime makes a Gemm of both, and computes it in integers only if its bias has this form, as that of a
    quantized Gemm has. A bias changes by at most half a unit of the sums.
    """

    name = "integer-biases"
    stage = "quantize"
    for_backend = "cpu-int8"
    requires = ("quantize",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Store the biases of the main graph, the only one with quantized nodes."""
        found = [node for node in self.own_nodes(model) if node.op_type == "MatMul"]
        if not found:
            return False
        nodes = new_nodes(model, ctx)
        made = sum(_store_bias(node, nodes, ctx) for node in found)
        if made:
            ctx.count("biases", made)
            model.touch()
        return made > 0


def _store_bias(node: ir.Node, nodes: NewNodes, ctx: Context) -> bool:
    """Store the bias of one MatMul; return whether it has one in another form."""
    add, found = _reader(node), []
    for value in node.inputs if add is not None else ():
        scale = _scale_of(value)
        if scale is None:  # scales of a weight are computed when they are read: not without a scale of the input
            return False
        found.append(np.asarray(scale, np.float32))
    if add is None:
        return False
    given, weight = found
    index = next((at for at, value in enumerate(add.inputs) if value is not None and value.is_initializer()), None)
    if index is None or given.size != 1:
        return False
    bias = input_of(add, index)
    scale = (given.reshape(()) * weight.reshape(-1)).astype(np.float32)
    numbers = constant_of(bias).numpy().astype(np.float64)
    if numbers.ndim != 1 or bias.is_graph_output() or bias.is_graph_input() or scale.size not in (1, numbers.size):
        return False
    scale = np.broadcast_to(scale, numbers.shape)
    integers = np.rint(numbers / scale)
    if not np.isfinite(integers).all() or np.abs(integers).max(initial=0) > _LARGEST:
        why = f"the bias '{bias.name}' is too large for 32 bits in the scale of its sums, and stays a float"
        ctx.remark("missed", node, "integer-bias", why)
        return False
    arrays = {"int32": integers.astype(np.int32), "scale": scale, "zero_point": np.zeros(numbers.shape, np.int32)}
    constants = [
        nodes.constant(ir.Tensor(np.ascontiguousarray(array), name=f"{bias.name}_{part}"))
        for part, array in arrays.items()
    ]
    like = {f"{bias.name}_float32": (ir.DataType.FLOAT, bias.shape)}
    made = nodes.add_several(nodes.graph[0], "DequantizeLinear", constants, f"{bias.name}_dequantize", like, axis=0)
    add.replace_input_with(index, made[0])
    nodes.drop_unread(bias)
    ctx.remark("passed", node, "integer-bias", f"the bias '{bias.name}' is held in int32, in the scale of its sums")
    return True


def _scale_of(value: ir.Value | None) -> np.ndarray | None:
    """Return the constant scale of a dequantized value; None for other values."""
    producer = value.producer() if value is not None else None
    if producer is None or producer.op_type != "DequantizeLinear" or not is_onnx(producer):
        return None
    scale = input_of(producer, 1)
    return scale.const_value.numpy() if scale.const_value is not None and not scale.is_graph_input() else None


def _reader(node: ir.Node) -> ir.Node | None:
    """Return the Add on the same backend that alone reads a node's result; None if there is none."""
    uses = node.outputs[0].uses()
    if len(uses) != 1 or node.outputs[0].is_graph_output():
        return None
    add = next(iter(uses)).node
    there = is_here(add) and add.graph is node.graph
    return add if there and add.op_type == "Add" and is_onnx(add) else None
