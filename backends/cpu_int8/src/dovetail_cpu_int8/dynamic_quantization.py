"""The `dynamic-quantization` pass: MatMuls that read floats and have integer weights, computed in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir import FLOAT32, FreshNames, input_of, name_of
from dovetail.passes import Pass
from dovetail.planning import Placement, set_placement

from dovetail_cpu_int8.max_size import weights_alone
from dovetail_cpu_int8.new_nodes import BACKEND, is_here

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class DynamicQuantization(Pass):
    """Quantize the input of a MatMul with integer weights at run time.

    Given:  %w = DequantizeLinear(%w_int8, %t, 0)   %y = MatMul(%x, %w), where %x is a float
    Result: %q, %s, %z = DynamicQuantizeLinear(%x)   %i = MatMulInteger(%q, %w_int8, %z)
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
        self._graph, self._ctx = model.graph, ctx
        self._names = ctx.analysis(FreshNames, model)
        self._quantized: dict[ir.Value, tuple[ir.Value, ir.Value, ir.Value]] = {}
        self.made = 0

    def rewrite(self, node: ir.Node) -> None:
        """Rewrite one MatMul, if its weights alone are quantized."""
        given, weight = input_of(node, 0), input_of(node, 1).producer()
        source = given.producer()
        if source is not None and source.op_type == "DequantizeLinear":
            return
        if weight is None or weight.op_type != "DequantizeLinear" or not input_of(weight, 0).is_initializer():
            return
        integers, scale, zero_point = self._dynamic(given, node)
        stored, weight_scale = input_of(weight, 0), input_of(weight, 1)
        result, name = node.outputs[0], node.name or name_of(node.outputs[0])
        sums = self._node("MatMulInteger", [integers, stored, zero_point], f"{name}_integer", ir.DataType.INT32, node)
        floats = self._node("Cast", [sums], f"{name}_cast", ir.DataType.FLOAT, node, to=int(ir.DataType.FLOAT))
        both = self._node("Mul", [scale, weight_scale], f"{name}_scale", ir.DataType.FLOAT, node)
        both.shape = weight_scale.shape
        floats.shape = sums.shape = result.shape
        scaled = ir.node("Mul", [floats, both], name=node.name)
        scaled.outputs[0].type, scaled.outputs[0].shape = result.type, result.shape
        set_placement(scaled, Placement(BACKEND, FLOAT32))
        self._graph.insert_before(node, scaled)
        result.replace_all_uses_with(scaled.outputs[0], replace_graph_outputs=True)
        self._graph.remove(node, safe=True)
        scaled.outputs[0].name, result.name = result.name, None
        if not weight.outputs[0].uses():
            self._graph.remove(weight, safe=True)
        why = f"'{given.name}' is quantized when it is run, and multiplied in integers"
        self._ctx.remark("passed", scaled, "dynamic-quantization", why)
        self.made += 1

    def _dynamic(self, value: ir.Value, before: ir.Node) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the integers, the scale and the zero point of a value, computed before its first product."""
        if value not in self._quantized:
            made = ir.node(
                "DynamicQuantizeLinear", [value], num_outputs=3, name=self._names.fresh(f"{value.name}_quantize")
            )
            kinds = (ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8)
            parts = ("uint8", "scale", "zero_point")
            for output, kind, part in zip(made.outputs, kinds, parts, strict=True):
                output.name, output.type = self._names.fresh(f"{value.name}_{part}"), ir.TensorType(kind)
                output.shape = value.shape if part == "uint8" else ir.Shape(())
            set_placement(made, Placement(BACKEND, FLOAT32))
            self._graph.insert_before(before, made)
            self._quantized[value] = made.outputs[0], made.outputs[1], made.outputs[2]
        return self._quantized[value]

    def _node(
        self, operator: str, inputs: list[ir.Value], name: str, kind: ir.DataType, before: ir.Node, **attributes: int
    ) -> ir.Value:
        made = ir.node(operator, inputs, attributes, name=self._names.fresh(name))
        made.outputs[0].name = self._names.fresh(f"{name}_out")
        made.outputs[0].type = ir.TensorType(kind)
        set_placement(made, Placement(BACKEND, FLOAT32))
        self._graph.insert_before(before, made)
        return made.outputs[0]
