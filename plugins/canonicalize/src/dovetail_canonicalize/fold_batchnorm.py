"""The `fold-batchnorm` pass: fold inference-mode batch normalisation into the preceding convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.fresh_names import FreshNames
from dovetail.passes import Pass
from dovetail.planning.placement import origin_of, set_origin

from dovetail_canonicalize.products import add_constant

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["FoldBatchNorm"]

_CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1}  # of the weight, for its output channels


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Fold BatchNormalization into the convolution before it.

    Given:  %1 = Conv(%x, %w, %b)   %2 = BatchNormalization(%1, scale, shift, mean, var), all but %x constant
    Result: %2 = Conv(%x, %w * k, (%b - mean) * k + shift) with k = scale / sqrt(var + epsilon)

    The new weight is computed lazily while the model is saved; the old one stays for other readers.
    """

    name = "fold-batchnorm"
    stage = "normalise"
    after = ("normalise", "fold-constants")

    def run(self, model: Model, ctx: Context) -> bool:
        """Fold every pair; remark pairs that cannot be folded."""
        changed = False
        inputs = {id(value) for value in model.graph.inputs}
        for _, graph in model.graphs():
            for node in graph:
                if node.op_type != "BatchNormalization" or node.domain not in ("", "ai.onnx"):
                    continue
                convolution = node.inputs[0].producer()
                reason = _obstacle(node, convolution, graph, inputs)
                if reason:
                    ctx.remark("missed", node, "fold-batchnorm", f"not folded: {reason}")
                    continue
                _fold(graph, convolution, node, ctx.analysis(FreshNames, model))
                ctx.remark("passed", convolution, "fold-batchnorm", f"'{node.name}' is folded into it")
                ctx.count("folded")
                changed = True
        return changed


def _obstacle(node: ir.Node, convolution: ir.Node | None, graph: ir.Graph, inputs: set[int]) -> str:
    def constant(value: ir.Value | None) -> bool:
        known = value is not None and value.is_initializer() and value.const_value is not None
        return known and id(value) not in inputs

    if convolution is None or convolution.op_type not in _CHANNEL_AXIS or convolution.graph is not graph:
        return "its input is not computed by a convolution"
    if convolution.op_type == "ConvTranspose" and convolution.attributes.get_int("group", 1) != 1:
        return "the transposed convolution has groups"
    if node.attributes.get_int("training_mode", 0):
        return "it is in training mode"
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return "its statistics outputs are used"
    result = node.inputs[0]
    if len(result.uses()) != 1 or result.is_graph_output():
        return "the convolution has other readers"
    if not all(constant(value) for value in node.inputs[1:5]) or not constant(convolution.inputs[1]):
        return "its parameters are not constant"
    if len(convolution.inputs) > 2 and convolution.inputs[2] is not None and not constant(convolution.inputs[2]):
        return "the convolution's bias is not constant"
    if convolution.inputs[1].const_value.dtype.name not in ("FLOAT", "DOUBLE"):
        return "the weight is stored in a narrow type"
    return ""


def _fold(graph: ir.Graph, convolution: ir.Node, node: ir.Node, names: FreshNames) -> None:
    import numpy as np
    import onnx_ir as ir

    scale, shift, mean, variance = (value.const_value.numpy().astype(np.float64) for value in node.inputs[1:5])
    factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
    old = convolution.inputs[1].const_value
    bias = convolution.inputs[2] if len(convolution.inputs) > 2 else None
    before = np.zeros_like(mean) if bias is None else bias.const_value.numpy().astype(np.float64)
    dtype = old.dtype.numpy()
    axis = _CHANNEL_AXIS[convolution.op_type]

    def weight() -> ir.TensorProtocol:
        along = factor.reshape([-1 if position == axis else 1 for position in range(len(old.shape))])
        return ir.tensor((old.numpy() * along.astype(dtype)).astype(dtype))

    new_weight = ir.LazyTensor(weight, old.dtype, ir.Shape(old.shape))
    new_bias = ir.tensor(((before - mean) * factor + shift).astype(dtype))
    convolution.replace_input_with(1, add_constant(graph, names.fresh(f"{node.name}_weight"), new_weight))
    if len(convolution.inputs) < 3:
        convolution.resize_inputs(3)
    convolution.replace_input_with(2, add_constant(graph, names.fresh(f"{node.name}_bias"), new_bias))
    set_origin(convolution, (*origin_of(convolution), *origin_of(node)))
    old_result, result = convolution.outputs[0], node.outputs[0]
    name = result.name
    old_result.type, old_result.shape = result.type or old_result.type, result.shape or old_result.shape
    for index, output in enumerate(graph.outputs):
        if output is result:
            graph.outputs[index] = old_result
    result.replace_all_uses_with(old_result)
    graph.remove(node, safe=True)
    result.name = None  # its node is gone, and gives the name up
    old_result.name = name
