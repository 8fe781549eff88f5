"""Sums with the results of products that OpenVINO must not fuse into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_cpu_bf16.decompositions import fusion_barrier
from dovetail_cpu_bf16.float32_flow import reads_bfloat16

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["block_bias_fusion"]

_PRODUCTS = frozenset({
    "Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul",
})  # fmt: skip


def block_bias_fusion(model: ov.Model, kept: list[ov.Node]) -> list[ov.Node]:
    """Keep OpenVINO from adding what is kept to a product in bfloat16: it would round the sum, and not what was added.

    That is wanted where the sum leads to outputs only, as scores do: there it is one rounding less.

    Args:
        model: The graph, changed in place.
        kept: The operations that are to be computed in float32.

    Returns:
        The operations that stand between the products and the sums now; they are to be computed in float32, too.
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
    """The names of operations whose results reach outputs of the model, and no operation in bfloat16."""
    found: set[str] = set()
    for operation in reversed(model.get_ordered_ops()):
        readers = [port.get_node() for output in operation.outputs() for port in output.get_target_inputs()]
        if operation.get_type_name() == "Result" or all(
            reader.get_name() in found and not reads_bfloat16(reader) for reader in readers
        ):
            found.add(operation.get_name())
    return found
