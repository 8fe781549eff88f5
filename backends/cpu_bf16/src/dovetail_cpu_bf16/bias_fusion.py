"""Fusion barriers that keep OpenVINO from fusing float32 sums into bfloat16 products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_cpu_bf16.decompositions import fusion_barrier
from dovetail_cpu_bf16.float32_marks import reads_bfloat16

if TYPE_CHECKING:
    import openvino as ov


_PRODUCTS = frozenset({
    "Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul",
})  # fmt: skip


def block_bias_fusion(model: ov.Model, kept: list[ov.Node]) -> list[ov.Node]:
    """Insert a fusion barrier between a bfloat16 product and a float32 Add, whose result a fusion would round.

    Sums that only lead to outputs, such as scores, may be fused: there the fusion saves one rounding.

    Args:
        model: The graph, changed in place.
        kept: The operations to compute in float32.

    Returns:
        The inserted barriers, which must be computed in float32, too.
    """
    leading_out = _leading_out(model)
    found = []
    for operation in kept:
        if operation.get_type_name() != "Add" or operation.get_name() in leading_out:
            continue
        for port in operation.inputs():
            source = port.get_source_output()
            if source.get_node().get_type_name() != "Convert":
                continue
            product = source.get_node().input_value(0).get_node()
            if product.get_type_name() in _PRODUCTS and reads_bfloat16(product):
                between = fusion_barrier(source)
                port.replace_source_output(between.output(0))
                found.append(between)
    return found


def _leading_out(model: ov.Model) -> set[str]:
    """Return the names of operations whose results reach outputs of the model, and no bfloat16 operation."""
    found: set[str] = set()
    for operation in reversed(model.get_ordered_ops()):
        readers = [port.get_node() for output in operation.outputs() for port in output.get_target_inputs()]
        if operation.get_type_name() == "Result" or all(
            reader.get_name() in found and not reads_bfloat16(reader) for reader in readers
        ):
            found.add(operation.get_name())
    return found
