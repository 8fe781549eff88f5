"""The `dynamic-quantization` pass: MatMuls that read floats and have integer weights, computed in integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import input_of, name_of, producer_of
from dovetail.passes import Pass

from dovetail_cpu_int8.backend import BACKEND, is_here, new_nodes, weights_alone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context


_FLOAT, _INT32 = ir.DataType.FLOAT, ir.DataType.INT32


class DynamicQuantization(Pass):
    """Quantize the input of a MatMul with integer weights at run time.

    Given:  %w = DequantizeLinear(%w_int8, %t, %o)   %y = MatMul(%x, %w), where %x is a float
    Result: %q, %s, %z = DynamicQuantizeLinear(%x)   %i = MatMulInteger(%q, %w_int8, %z, %o)
            %y = Mul(Cast(%i), Mul(%s, %t))

    That is how `cpu-int8:activations=dynamic` plans a MatMul. ONNX Runtime fuses all of it into one kernel, with the
    Add of a bias after it. One DynamicQuantizeLinear serves all products that read a value.
    """

    name = "dynamic-quantization"
    stage = "quantize"
    for_backend = "cpu-int8"
    requires = ("quantize",)
    after = ("integer-biases",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the products of the main graph, the only one with quantized nodes."""
        if any(backend.name == BACKEND and weights_alone(backend) for backend in ctx.backends):
            return False
        found = [node for node in model.graph if node.op_type == "MatMul" and is_here(node)]
        if not found:
            return False
        rewriter = _Rewriter(model, ctx)
        for node in found:
            rewriter.rewrite(node)
        if rewriter.made:
            ctx.count("dynamic", rewriter.made)
            model.touch()
        return rewriter.made > 0


class _Rewriter:
    """Rewrites the products of one model."""

    def __init__(self, model: Model, ctx: Context):
        self._nodes, self._ctx = new_nodes(model, ctx), ctx
        self._quantized: dict[ir.Value, Sequence[ir.Value]] = {}
        self.made = 0

    def rewrite(self, node: ir.Node) -> None:
        """Rewrite one MatMul, if its weights alone are quantized."""
        given, weight = input_of(node, 0), input_of(node, 1).producer()
        source = given.producer()
        if source is not None and source.op_type == "DequantizeLinear":
            return
        if weight is None or weight.op_type != "DequantizeLinear" or not input_of(weight, 0).is_initializer():
            return
        if why := _why_not(weight):
            self._ctx.remark("missed", node, "dynamic-quantization", f"computed in floats: {why}")
            return
        integers, scale, zero_point = self._dynamic(given, node)
        stored, weight_scale = input_of(weight, 0), input_of(weight, 1)
        offset = [value for value in weight.inputs[2:] if not _is_zero(value)]  # zeros need no input
        result, name, add = node.outputs[0], node.name or name_of(node.outputs[0]), self._nodes.add
        sums = add(
            node, "MatMulInteger", [integers, stored, zero_point, *offset], f"{name}_integer", (_INT32, result.shape)
        )
        floats = add(node, "Cast", [sums], f"{name}_cast", (_FLOAT, result.shape), to=int(_FLOAT))
        both = add(node, "Mul", [scale, weight_scale], f"{name}_scale", (_FLOAT, weight_scale.shape))
        scaled = add(node, "Mul", [floats, both], f"{name}_scaled", (_FLOAT, result.shape))
        self._nodes.replace(node, scaled)
        self._nodes.drop_unread(weight.outputs[0])
        why = f"'{given.name}' is quantized when it is run, and multiplied in integers"
        self._ctx.remark("passed", producer_of(scaled), "dynamic-quantization", why)
        self.made += 1

    def _dynamic(self, value: ir.Value, before: ir.Node) -> Sequence[ir.Value]:
        """Return the integers, the scale and the zero point of a value, computed before its first product."""
        if value not in self._quantized:
            name, scalar = value.name, ir.Shape(())
            parts = {
                f"{name}_uint8": (ir.DataType.UINT8, value.shape),
                f"{name}_scale": (_FLOAT, scalar),
                f"{name}_zero_point": (ir.DataType.UINT8, scalar),
            }
            self._quantized[value] = self._nodes.add_several(
                before, "DynamicQuantizeLinear", [value], f"{name}_quantize", parts
            )
        return self._quantized[value]


def _is_zero(value: ir.Value | None) -> bool:
    return value is None or value.const_value is not None and not value.const_value.numpy().any()


def _why_not(weight: ir.Node) -> str:
    """Return why MatMulInteger cannot read the integers of a DequantizeLinear; empty if it can."""
    stored, scale = input_of(weight, 0), input_of(weight, 1)
    if stored.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return f"MatMulInteger takes int8 and uint8, and '{stored.name}' is {str(stored.dtype).lower()}"
    if scale.dtype != _FLOAT:
        return f"the scale '{scale.name}' is {str(scale.dtype).lower()} and not float32"
    if scale.shape is None or len(scale.shape) == 0:
        return ""
    rank = 0 if stored.shape is None else len(stored.shape)
    if len(scale.shape) == 1 and rank == 2 and weight.attributes.get_int("axis", 1) in (1, -1):
        return ""
    return f"the scales of '{stored.name}' differ within a column"
