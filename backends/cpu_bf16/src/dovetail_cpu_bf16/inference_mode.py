"""Compilation of a region in OpenVINO's bfloat16 inference mode.

With the hint `bf16`, OpenVINO infers a float32 graph in bfloat16: it rounds results of kernels and weights of products,
but computes biases, scales and activations that it fuses into a product in float32, and all operators after the last
product. A graph that is typed in bfloat16 is less precise: all constants and all results are rounded. Hence OpenVINO
gets a region in float32, with marks on the operations that the plan has in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_cpu_bf16.bias_fusion import block_bias_fusion
from dovetail_cpu_bf16.decompositions import decompose
from dovetail_cpu_bf16.float32_marks import find_float32_operations, mark_float32, with_bodies
from dovetail_cpu_bf16.widening import ExactConstants, widen

if TYPE_CHECKING:
    import openvino as ov


IN_BFLOAT16: Mapping[str, object] = {"INFERENCE_PRECISION_HINT": "bf16"}
"""OpenVINO's configuration for the mode."""

# Layer types of products, with the operation types they come from.
_PRODUCTS = {
    "Convolution": ("Convolution", "GroupConvolution"),
    "Deconvolution": ("ConvolutionBackpropData", "GroupConvolutionBackpropData"),
    "FullyConnected": ("MatMul",),
    "MatMul": ("MatMul",),
}
_IO_LAYERS = frozenset({"Const", "Input", "Output", "Reorder"})


def infer_in_bfloat16(model: ov.Model, exact: ExactConstants, config: Mapping[str, object]) -> ov.CompiledModel | None:
    """Compile `model`, which is consumed.

    Args:
        model: A graph that `is_mixed`.
        exact: The float32 values of constants that were rounded to bfloat16.
        config: OpenVINO's configuration, with the hint.

    Returns:
        The compiled model; None if OpenVINO ignores a mark.
    """
    import openvino as ov

    marked = widened(model, exact)
    kinds = {operation.get_friendly_name(): operation.get_type_name() for operation in marked}
    model = mark_float32(model, marked)
    compiled = ov.Core().compile_model(model, "CPU", dict(config))
    return compiled if not kinds or _respects_marks(compiled, kinds) else None


def widened(model: ov.Model, exact: ExactConstants) -> list[ov.Node]:
    """Make a graph float32 for the mode, in place; return the operations that the mode must not lower.

    Args:
        model: A graph that `is_mixed`.
        exact: The float32 values of constants that were rounded to bfloat16.
    """
    marked = []
    for part in with_bodies(model):
        kept = find_float32_operations(part)
        marked += block_bias_fusion(part, kept)
        marked += [made for operation in kept for made in decompose(operation)]
    widen(model, exact)
    return marked


def is_mixed(model: ov.Model) -> bool:
    """Check whether `model` computes only in bfloat16 and float32; its border may have float16."""
    ports = (
        port
        for part in with_bodies(model)
        for node in part.get_ordered_ops()
        if not _is_border(node)
        for port in node.outputs()
    )
    kinds = {port.get_element_type().get_type_name() for port in ports}
    return "bf16" in kinds and not kinds & {"f16", "f64"}


def _is_border(operation: ov.Node) -> bool:
    """Check whether an operation only passes float16 in or out: an input, an output, or its conversion."""
    kind = operation.get_type_name()
    if (
        kind not in ("Parameter", "Convert", "Result")
        or operation.output(0).get_element_type().get_type_name() != "f16"
    ):
        return False
    neighbors = {"Convert"} if kind == "Parameter" else {"Result"}
    readers = (port.get_node() for port in operation.output(0).get_target_inputs())
    return kind == "Result" or all(reader.get_type_name() in neighbors for reader in readers)


def _respects_marks(compiled: ov.CompiledModel, marked: Mapping[str, str]) -> bool:
    """Check that no bfloat16 kernel consists only of marked operations.

    A product may take over the name of its bias Add, which it computes in float32 regardless of its own type.

    Args:
        compiled: The compiled model.
        marked: The types of all marked operations, by name.
    """
    for layer in compiled.get_runtime_model().get_ordered_ops():
        info = layer.get_rt_info()
        kind = info["layerType"].astype(str)
        if info["runtimePrecision"].astype(str) != "bf16" or kind in _IO_LAYERS:
            continue
        names = [name for name in info["originalLayersNames"].astype(str).split(",") if name]
        if not names or not marked.keys() >= set(names):
            continue
        if kind not in _PRODUCTS or any(marked[name] in _PRODUCTS[kind] for name in names):
            return False
    return True
