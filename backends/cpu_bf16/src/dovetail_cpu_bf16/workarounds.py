"""Workarounds for defects of OpenVINO, applied to its graph before it is compiled.

Each replaces a pattern that OpenVINO 2026.4 computes wrongly by an equivalent one, at no measurable cost. The defects
were found by `tools/sweep.py`; `tests/e2e/test_random_graphs.py` holds the cases.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.plugin import EngineError

from dovetail_cpu_bf16.cut_numbers import compare_with_zero, normalize_bias
from dovetail_cpu_bf16.decompositions import fusion_barrier
from dovetail_cpu_bf16.float32_marks import CONTROL_FLOW, with_bodies
from dovetail_cpu_bf16.frontend_input import remove_idle_strides
from dovetail_cpu_bf16.infinities import compare_with_infinity, reduce_infinite_rows
from dovetail_cpu_bf16.loop_repairs import repair_loops, separate_transposes
from dovetail_cpu_bf16.pools import separate_pools

if TYPE_CHECKING:
    from collections.abc import Iterable

    import openvino as ov


_AFFINE = frozenset({"Add", "BatchNormInference", "Divide", "Multiply", "Subtract"})
_CONVERSIONS = frozenset({"Convert", "FakeQuantize", "Multiply", "Subtract"})
# Operations whose results are discontinuous at zero.
_JUMP_AT_ZERO = frozenset({
    "Ceiling", "Divide", "Equal", "Floor", "FloorMod", "Greater", "GreaterEqual", "Less", "LessEqual", "Log",
    "LogicalNot", "Mod", "NonZero", "NotEqual", "Power", "Round", "Sign", "Sqrt",
})  # fmt: skip


def apply_workarounds(model: ov.Model, low_precision: bool = False) -> None:
    """Apply all workarounds to `model` and its bodies, in place.

    Args:
        model: The graph.
        low_precision: Whether it is compiled with OpenVINO's low-precision transformations, which have to find
            conversions to and from integers as ONNX writes them: the fusion barriers around these are left out.

    Raises:
        EngineError: The model has a pattern without a workaround.
    """
    _refuse_dynamic_branches(model)
    parts = list(with_bodies(model))
    jumps = any(node.get_type_name() in _JUMP_AT_ZERO for part in parts for node in part.get_ordered_ops())
    for part in parts:
        operations = part.get_ordered_ops()
        if jumps and not low_precision:
            _dequantize_zero_exactly(operations)
        reduce_infinite_rows(operations)
        _keep_reduced_axes(operations)
        separate_transposes(operations)
        separate_pools(operations)
        _decompose_prelu(operations)
        _fold_constant_operands(operations, low_precision)
        if not low_precision:
            _block_fake_quantize_fusion(operations)
        compare_with_infinity(operations)
        _replace_zero_parameters(operations)
        normalize_bias(operations)
        compare_with_zero(operations)
        _replace_empty_gathers(operations)
        remove_idle_strides(operations)
        repair_loops(operations)


def _refuse_dynamic_branches(model: ov.Model) -> None:
    """Refuse an If in a model with dynamic extents, wherever they are.

    In the first run, readers of its results see uninitialized memory. The backend file refuses extents that are dynamic
    in ONNX; more may be dynamic in OpenVINO.
    """
    operations = model.get_ordered_ops()
    branch = next((node.get_friendly_name() for node in operations if node.get_type_name() == "If"), None)
    shapes = (port.get_partial_shape() for node in operations for port in node.outputs())
    if branch is not None and any(shape.is_dynamic for shape in shapes):
        raise EngineError(
            f"openvino-cpu refuses the node of '{branch}': it computes branches correctly only if all extents of the "
            "region are static",
            node=branch,
        )


def _keep_reduced_axes(operations: list[ov.Node]) -> None:
    """Make reductions of rank 3 keep the reduced axes, followed by a Squeeze or a fusion barrier.

    OpenVINO fuses element-wise operators into a reduction before them. With a constant of one element per channel, the
    kernel uses the wrong channel axis and reads beyond the constant.
    """
    from openvino import opset13

    makers = {
        "ReduceL1": opset13.reduce_l1,
        "ReduceL2": opset13.reduce_l2,
        "ReduceMax": opset13.reduce_max,
        "ReduceMean": opset13.reduce_mean,
        "ReduceMin": opset13.reduce_min,
        "ReduceProd": opset13.reduce_prod,
        "ReduceSum": opset13.reduce_sum,
    }
    for node in operations:
        make = makers.get(node.get_type_name())
        if make is None:
            continue
        rank = node.input(0).get_partial_shape().rank
        if rank.is_static and rank.get_length() != 3:
            continue
        name, data, axes = node.get_friendly_name(), node.input_value(0), node.input_value(1)
        readers = node.output(0).get_target_inputs()
        if not node.get_attributes().get("keep_dims", True):
            kept = make(data, axes, True)
            kept.set_friendly_name(name)
            behind = opset13.squeeze(kept, axes)
        elif node.output(0).get_element_type().is_real() and any(map(_reads_constant_too, readers)):
            behind = fusion_barrier(node.output(0))
        else:
            continue
        # The reduction keeps the node's name, and the operation after it the result's name.
        behind.set_friendly_name(f"{name}/reduced")
        behind.output(0).set_names(node.output(0).get_names())
        for reader in readers:
            reader.replace_source_output(behind.output(0))


def _reads_constant_too(port: ov.Input) -> bool:
    """Check whether the reader of a value, after conversions, also has a constant operand of several elements."""
    node = port.get_node()
    if node.get_type_name() == "Convert":
        return any(map(_reads_constant_too, node.output(0).get_target_inputs()))
    others = (other.get_source_output() for other in node.inputs() if other.get_index() != port.get_index())
    return any(map(_holds_several_constants, others))


def _holds_several_constants(value: ov.Output) -> bool:
    node = value.get_node()
    if node.get_type_name() in ("Convert", "Reshape", "Squeeze", "Unsqueeze"):
        return _holds_several_constants(node.input_value(0))
    return node.get_type_name() == "Constant" and math.prod(value.get_shape()) > 1


def _decompose_prelu(operations: list[ov.Node]) -> None:
    """Give PRelu constant slopes full rank, and decompose PRelu with computed slopes.

    OpenVINO applies slopes of rank 1 to the channel axis, ONNX to the last axis. OpenVINO fuses PRelu into the operator
    that computes its slope, as if that result were the data.
    """
    import numpy as np
    from openvino import opset13

    for node in operations:
        if node.get_type_name() != "PRelu":
            continue
        data, slope = node.input_value(0), node.input_value(1)
        if slope.get_node().get_type_name() != "Constant":
            zero = opset13.constant(np.zeros((), np.float32))
            zero = opset13.convert_like(zero, data)
            negative = opset13.multiply(opset13.minimum(data, zero), slope)
            made = opset13.add(opset13.relu(data), negative)
            made.set_friendly_name(node.get_friendly_name())
            made.output(0).set_names(node.output(0).get_names())
            node.output(0).replace(made.output(0))
            continue
        rank = data.get_partial_shape().rank
        missing = rank.get_length() - len(slope.get_shape()) if rank.is_static else 0
        if missing > 0 and slope.get_shape():
            axes = opset13.constant(np.arange(missing))
            node.input(1).replace_source_output(opset13.unsqueeze(slope, axes).output(0))


def _block_fake_quantize_fusion(operations: list[ov.Node]) -> None:
    """Insert a fusion barrier between a constant scale or shift and a FakeQuantize.

    OpenVINO folds them into the ranges of the FakeQuantize, and drops a Relu between them. If the ranges then differ
    per channel, the kernel computes wrong results.
    """
    for node in operations:
        if node.get_type_name() != "FakeQuantize":
            continue
        data = scaled = node.input_value(0)
        if data.get_node().get_type_name() == "Relu":
            scaled = data.get_node().input_value(0)
        if scaled.get_node().get_type_name() in _AFFINE and scaled.get_element_type().get_type_name() == "f32":
            node.input(0).replace_source_output(fusion_barrier(data).output(0))


def _dequantize_zero_exactly(operations: list[ov.Node]) -> None:
    """Insert a fusion barrier between the zero point and the scale of a dequantization.

    OpenVINO computes (q - z) * s as q * s - z * s, which is not zero where q is z. That matters to operations whose
    results jump there.
    """
    for node in operations:
        if node.get_type_name() != "Multiply":
            continue
        shifted = node.input_value(0)
        if shifted.get_node().get_type_name() != "Subtract" or shifted.get_element_type().get_type_name() != "f32":
            continue
        integers = shifted.get_node().input_value(0).get_node()
        if integers.get_type_name() == "Convert" and integers.input_value(0).get_node().get_type_name() != "Constant":
            node.input(0).replace_source_output(fusion_barrier(shifted).output(0))


def _replace_zero_parameters(operations: list[ov.Node]) -> None:
    """Replace zero parameters of activations by the smallest positive number, which changes no result.

    The kernels of HardSigmoid and Selu treat a zero parameter as missing, and use its default.
    """
    import numpy as np
    from openvino import opset13

    for node in operations:
        if node.get_type_name() not in ("HardSigmoid", "Selu"):
            continue
        for port in node.inputs()[1:]:
            constant = port.get_source_output().get_node()
            if constant.get_type_name() != "Constant" or np.any(constant.data):
                continue
            kind = port.get_element_type()
            smallest = np.finfo(np.float16 if kind.get_type_name() == "f16" else np.float32)
            number = smallest.smallest_subnormal if smallest.bits == 16 else smallest.smallest_normal
            made = opset13.constant(np.full(constant.get_output_shape(0), number, np.float32), kind)
            port.replace_source_output(made.output(0))


def _replace_empty_gathers(operations: list[ov.Node]) -> None:
    """Replace Gather operations without results by empty constants.

    Where extents are static, the kernel divides by one of zero, which ends the process.
    """
    import openvino as ov
    from openvino import op

    for node in operations:
        shape = node.get_output_partial_shape(0)
        if node.get_type_name() != "Gather" or shape.is_dynamic or 0 not in shape.to_shape():
            continue
        made = op.Constant(node.get_output_element_type(0), ov.Shape(list(shape.to_shape())), [])
        made.set_friendly_name(node.get_friendly_name())
        made.output(0).set_names(node.output(0).get_names())
        node.output(0).replace(made.output(0))


def _fold_constant_operands(operations: list[ov.Node], low_precision: bool) -> None:
    """Fold pointwise filters and first factors of MatMul that are computed from constants.

    After a Transpose, OpenVINO turns a pointwise convolution with dequantized filters into a MatMul, regardless of the
    permutation. If it cannot fold the operator that computes a constant matrix, it swaps its rows and columns.

    Folded filters are floats, so that the convolution is computed in floats; in low precision, only those after a
    Transpose are folded.
    """
    import openvino as ov
    from openvino import op

    constant = _computed_of_constants(operations)
    convolutions = [node for node in operations if node.get_type_name() == "Convolution"]
    filters = [node.input(1) for node in convolutions if not low_precision or _reads_transposed(node)]
    matrices = [node.input(0) for node in operations if node.get_type_name() == "MatMul"]
    ports: dict[str, list[ov.Input]] = {}
    sources: dict[str, ov.Output] = {}
    for port in (*filter(_covers_one, filters), *matrices):
        source = port.get_source_output()
        if source.get_node().get_name() in constant:
            name = f"{source.get_node().get_name()}:{source.get_index()}"
            sources[name] = source
            ports.setdefault(name, []).append(port)
    if not sources:
        return
    # All at once: compiling takes some milliseconds, however small a model is.
    model = ov.Model(list(sources.values()), _parameters_of(sources.values()))
    request = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    request.infer()
    for number, readers in enumerate(ports.values()):
        folded = op.Constant(request.get_output_tensor(number)).output(0)
        for port in readers:
            port.replace_source_output(folded)


def _reads_transposed(node: ov.Node) -> bool:
    """Check whether an operation reads the result of a Transpose, or its quantized form."""
    source = node.input_value(0).get_node()
    while source.get_type_name() in _CONVERSIONS and source.get_input_size():
        source = source.input_value(0).get_node()
    return source.get_type_name() == "Transpose"


def _covers_one(port: ov.Input) -> bool:
    shape = port.get_partial_shape()
    return shape.is_static and all(extent == 1 for extent in list(shape.to_shape())[2:])


def _computed_of_constants(operations: list[ov.Node]) -> set[str]:
    """Return the names of operations that are computed from constants and static shapes only."""
    known: set[str] = set()
    computed: set[str] = set()
    for operation in operations:
        kind, sources = operation.get_type_name(), operation.input_values()
        if kind == "Constant":
            known.add(operation.get_name())
        elif kind == "Parameter" or kind in CONTROL_FLOW:
            continue
        elif _is_known_shape(operation) or all(source.get_node().get_name() in known for source in sources):
            known.add(operation.get_name())
            computed.add(operation.get_name())
    return computed


def _is_known_shape(operation: ov.Node) -> bool:
    if operation.get_type_name() != "ShapeOf" or operation.input_value(0).get_partial_shape().is_dynamic:
        return False
    return operation.input_value(0).get_node().get_type_name() == "Parameter"


def _parameters_of(sources: Iterable[ov.Output]) -> list[ov.Node]:
    """Return the model inputs whose shapes the constants `sources` are computed from."""
    waiting, seen, parameters = [source.get_node() for source in sources], set(), []
    while waiting:
        node = waiting.pop()
        if node.get_name() not in seen:
            seen.add(node.get_name())
            waiting += [value.get_node() for value in node.input_values()]
            parameters += [node] if node.get_type_name() == "Parameter" else []
    return parameters
