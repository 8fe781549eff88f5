"""The `implicit-zero-points` pass: conversions with which ONNX Runtime loads a saved model, optimizers and all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dovetail.ir.required import dtype_of, input_of, name_of
from dovetail.passes import Pass

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context


_FROM_OPSET = 21
PROPAGATED = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""The operators behind which ONNX Runtime 1.32 repeats a DequantizeLinear; measured over 26 operators."""


@dataclass(frozen=True)
class ImplicitZeroPoints(Pass):
    """Leave out a zero point of zeros where ONNX Runtime would repeat it in the wrong type.

    Given:  %f = DequantizeLinear(%integers in int8, %scale, 0)   y = MaxPool(%f)
    Result: %f = DequantizeLinear(%integers in int8, %scale)      y = MaxPool(%f)

    ONNX Runtime's optimizer QDQPropagationTransformer puts a QuantizeLinear and a DequantizeLinear behind operators
    that move data. From opset 21 on it gives that QuantizeLinear an `output_dtype` of int8 and a zero point in uint8,
    and then refuses the node. Without a zero point, which is zero by default, it makes a valid one. Where a
    QuantizeLinear reads the result anyway nothing is repeated, and the zero point stays, because kernels in integers
    are only matched with it.
    """

    name = "implicit-zero-points"
    stage = "outline"
    before = ("form-regions",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Remove the zero points; initializers that nothing reads any more go with them."""
        if model.opset < _FROM_OPSET:
            return False
        changed = [node for node in model.nodes() if _is_repeated(node)]
        for node in changed:
            zero = input_of(node, 2)
            node.replace_input_with(2, None)
            node.resize_inputs(2)
            if zero.is_initializer() and not zero.uses() and not zero.is_graph_output() and not zero.is_graph_input():
                del cast("ir.Graph", zero.graph).initializers[name_of(zero)]
        if changed:
            ctx.count("zero points left out", len(changed))
            model.touch()
        return bool(changed)


def _is_repeated(node: ir.Node) -> bool:
    """Whether ONNX Runtime repeats a conversion from int8 behind what reads it."""
    if node.op_type != "DequantizeLinear" or node.domain not in ("", "ai.onnx") or len(node.inputs) < 3:
        return False
    zero = node.inputs[2]
    if zero is None or zero.const_value is None or dtype_of(zero).name != "INT8" or zero.const_value.numpy().any():
        return False
    moving = [reader for reader, _ in node.outputs[0].uses() if reader.op_type in PROPAGATED]
    return any(value.is_graph_output() or not _only_quantized(value) for value in _results(moving))


def _results(nodes: list[ir.Node]) -> Iterator[ir.Value]:
    return (value for node in nodes for value in node.outputs if value.name)


def _only_quantized(value: ir.Value) -> bool:
    readers = [reader for reader, _ in value.uses()]
    return bool(readers) and all(reader.op_type == "QuantizeLinear" for reader in readers)
