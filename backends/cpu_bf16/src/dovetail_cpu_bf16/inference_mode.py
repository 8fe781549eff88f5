"""Compiling a region in OpenVINO's own bfloat16 mode.

OpenVINO infers a float32 graph in bfloat16 when it is told to. It then rounds what leaves a kernel and the weights of
products; biases, scales, shifts and activations that it fuses behind a product it computes in float32, and so it does
everything behind the last product. A graph that is typed in bfloat16 says less than that: every constant is rounded,
and so is every result on the way to an output. So a region goes to OpenVINO in float32, and the operations that the
plan has in float32 are marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail_cpu_bf16.bodies import with_bodies
from dovetail_cpu_bf16.float32_marks import mark_float32
from dovetail_cpu_bf16.spelled_out import spell_out
from dovetail_cpu_bf16.widening import Exact, widen

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["infer_in_bfloat16", "is_mixed"]

_BORDER = frozenset({"Const", "Input", "Output", "Reorder"})
_NO_ARITHMETIC = frozenset({"Constant", "Convert", "ConvertLike", "Parameter", "Result", "ShapeOf"})


def infer_in_bfloat16(model: ov.Model, exact: Exact, config: Mapping[str, object]) -> ov.CompiledModel | None:
    """Compile `model`, which is used up.

    Args:
        model: A graph that `is_mixed`.
        exact: What constants were before they were rounded to bfloat16.
        config: OpenVINO's configuration, without a precision.

    Returns:
        What was compiled; None where OpenVINO does not heed a mark.
    """
    import openvino as ov

    marked = [part for operation in _float32_operations(model) for part in spell_out(operation)]
    names = {operation.get_friendly_name() for operation in marked}
    widen(model, exact)
    model = mark_float32(model, marked)
    compiled = ov.Core().compile_model(model, "CPU", {**config, "INFERENCE_PRECISION_HINT": "bf16"})
    return compiled if not names or _heeds(compiled, names) else None


def is_mixed(model: ov.Model) -> bool:
    """Whether there is bfloat16 in `model`, and besides it no float but float32."""
    kinds = {_kind(port) for part in with_bodies(model) for node in part.get_ordered_ops() for port in node.outputs()}
    return "bf16" in kinds and not kinds & {"f16", "f64"}


def _float32_operations(model: ov.Model) -> list[ov.Node]:
    """The operations that lose digits if they are inferred in bfloat16: those with a float32 value on one side.

    A kernel computes in float32 what it reads in bfloat16, and rounds the result. So an operation is as good in either
    type if all it reads has been rounded, and all readers of its result round that.
    """
    return [operation for part in with_bodies(model) for operation in part.get_ordered_ops() if _is_exact(operation)]


def _is_exact(operation: ov.Node) -> bool:
    if operation.get_type_name() in _NO_ARITHMETIC:
        return False
    inputs = [port.get_source_output() for port in operation.inputs()]
    if any(_kind(source) == "bf16" for source in inputs):
        return False
    reads = any(_kind(source) == "f32" and not _is_known_or_rounded(source.get_node()) for source in inputs)
    readers = [port for output in operation.outputs() if _kind(output) == "f32" for port in output.get_target_inputs()]
    return reads or any(_reads_float32(port.get_node()) for port in readers)


def _kind(port: ov.Output) -> str:
    return port.get_element_type().get_type_name()


def _is_known_or_rounded(node: ov.Node) -> bool:
    """Whether `node` gives a constant, or a float32 that was bfloat16 or an integer just before."""
    if node.get_type_name() == "Convert":
        source = node.input_value(0)
        return _kind(source) != "f32" or _is_known_or_rounded(source.get_node())
    return node.get_type_name() == "Constant"


def _reads_float32(reader: ov.Node) -> bool:
    if reader.get_type_name() == "Convert":
        return _kind(reader.output(0)) == "f32"
    return reader.get_type_name() != "ShapeOf"


def _heeds(compiled: ov.CompiledModel, marked: set[str]) -> bool:
    """Whether no kernel computes marked operations, and only those, in bfloat16."""
    for layer in compiled.get_runtime_model().get_ordered_ops():
        info = layer.get_rt_info()
        if info["runtimePrecision"].astype(str) != "bf16" or info["layerType"].astype(str) in _BORDER:
            continue
        names = [name for name in info["originalLayersNames"].astype(str).split(",") if name]
        if names and marked.issuperset(names):
            return False
    return True
