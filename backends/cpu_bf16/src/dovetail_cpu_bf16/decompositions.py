"""Decomposition of operations that OpenVINO would decompose itself before it reads float32 marks.

The operations that OpenVINO creates carry no mark, so `float32_marks.py` would have no effect on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov


def decompose(operation: ov.Node) -> list[ov.Node]:
    """Replace `operation` in its graph if OpenVINO would; return the operations that compute its result."""
    make = _MAKERS.get(operation.get_type_name())
    made = make(operation) if make is not None else []
    if not made:
        return [operation]
    name = operation.get_friendly_name()
    for number, part in enumerate(made[:-1]):
        part.set_friendly_name(f"{name}/{number}")
    made[-1].set_friendly_name(name)
    made[-1].output(0).set_names(operation.output(0).get_names())
    operation.output(0).replace(made[-1].output(0))
    return made


def _constant(value: float) -> ov.Node:
    import numpy as np
    from openvino import opset13

    return opset13.constant(np.float32(value))


def _subtract(operation: ov.Node) -> list[ov.Node]:
    from openvino import opset13

    negative = _negative(operation.input_value(1))
    return [*negative, opset13.add(operation.input_value(0), negative[-1])]


def _negative(value: ov.Output) -> list[ov.Node]:
    """Negate `value`, with fusion barriers.

    OpenVINO turns a sum with a product by -1 back into a Subtract, and two products with constants into one.
    """
    from openvino import opset13

    made = [fusion_barrier(value)] if value.get_node().get_type_name() == "Multiply" else []
    negative = opset13.multiply(made[-1] if made else value, _constant(-1))
    return [*made, negative, fusion_barrier(negative)]


def fusion_barrier(value: ov.Output | ov.Node) -> ov.Node:
    """Return `value` to the power of one: an identity through which OpenVINO does not fuse."""
    import openvino as ov
    from openvino import opset13

    output = value if isinstance(value, ov.Output) else value.output(0)
    return opset13.power(output, opset13.constant(1, output.get_element_type()))


def _divide(operation: ov.Node) -> list[ov.Node]:
    from openvino import opset13

    if not operation.get_output_element_type(0).is_real():
        return []
    inverse = opset13.power(operation.input_value(1), _constant(-1))
    # OpenVINO turns a product with an inverse back into a Divide.
    divisor = fusion_barrier(inverse)
    return [inverse, divisor, opset13.multiply(operation.input_value(0), divisor)]


def _softmax(operation: ov.Node) -> list[ov.Node]:
    from openvino import opset1

    axis = _axis(operation)
    return [] if axis is None else [opset1.softmax(operation.input_value(0), axis)]


def _log_softmax(operation: ov.Node) -> list[ov.Node]:
    import numpy as np
    from openvino import opset13

    axis = _axis(operation)
    if axis is None:
        return []
    data, axes = operation.input_value(0), opset13.constant(np.array([axis]))
    largest = opset13.reduce_max(data, axes, True)
    negative = _negative(largest.output(0))
    shifted = opset13.add(data, negative[-1])
    powers = opset13.exp(shifted)
    total = opset13.reduce_sum(powers, axes, True)
    log = opset13.log(total)
    below = _negative(log.output(0))
    return [largest, *negative, shifted, powers, total, log, *below, opset13.add(shifted, below[-1])]


def _axis(operation: ov.Node) -> int | None:
    axis, rank = operation.get_attributes()["axis"], operation.input_value(0).get_partial_shape().rank
    if axis >= 0:
        return axis
    return axis + rank.get_length() if rank.is_static else None


def _normalize(operation: ov.Node) -> list[ov.Node]:
    """Decompose an MVN into mean and variance over its axes."""
    from openvino import opset13

    data, axes = operation.input_value(0), operation.input_value(1)
    if _has_kernel(data, axes):
        return []
    attributes = operation.get_attributes()
    mean = opset13.reduce_mean(data, axes, True)
    negative = _negative(mean.output(0))
    centered = opset13.add(data, negative[-1])
    made = [mean, *negative, centered]
    if not attributes["normalize_variance"]:
        return made
    squared = opset13.multiply(centered, centered)
    mean_square = opset13.reduce_mean(squared, axes, True)
    # This changes no value, because a mean of squares is not negative. It keeps OpenVINO from fusing the remainder.
    variance = opset13.maximum(mean_square, _constant(0))
    made += [squared, mean_square, variance]
    epsilon = _constant(attributes["eps"])
    if attributes["eps_mode"].lower() == "inside_sqrt":
        shifted = opset13.add(variance, epsilon)
        made += [shifted, opset13.power(shifted, _constant(-0.5))]
    else:
        root = opset13.power(variance, _constant(0.5))
        shifted = opset13.add(root, epsilon)
        made += [root, shifted, opset13.power(shifted, _constant(-1))]
    return [*made, opset13.multiply(centered, made[-1])]


def _has_kernel(data: ov.Output, axes: ov.Output) -> bool:
    """Check whether OpenVINO has a kernel for this MVN: over all spatial axes, with or without the channel axis."""
    rank, count, source = data.get_partial_shape().rank, axes.get_partial_shape(), axes.get_node()
    if rank.is_dynamic or count.is_dynamic:
        return False
    length = rank.get_length()
    if source.get_type_name() == "Constant":
        covered = sorted(int(axis) % length for axis in source.data.reshape(-1))
    elif source.get_type_name() == "Range":  # the frontend writes "from this axis to the last" as a Range
        covered = list(range(length - count.to_shape()[0], length))
    else:
        return False
    return covered in (list(range(1, length)), list(range(2, length)))


def _pad(operation: ov.Node) -> list[ov.Node]:
    """Downgrade a Pad of opset 12 to opset 1, as OpenVINO does."""
    from openvino import opset1

    if _is_version(operation, "opset1"):
        return []
    data, begins, ends, *value = operation.input_values()
    return [opset1.pad(data, begins, ends, operation.get_attributes()["pad_mode"], *value)]


def _scatter_elements(operation: ov.Node) -> list[ov.Node]:
    """Downgrade ScatterElements of opset 12 without a reduction to the older operation, as OpenVINO does."""
    from openvino import opset3

    if _is_version(operation, "opset3") or operation.get_attributes()["reduction"].lower() != "none":
        return []
    return [opset3.scatter_elements_update(*operation.input_values())]


def _interpolate(operation: ov.Node) -> list[ov.Node]:
    """Downgrade an Interpolate of opset 11 to opset 4, which has both sizes and scales, as OpenVINO does."""
    import numpy as np
    from openvino import opset13
    from openvino.utils.node_factory import NodeFactory

    if not _is_version(operation, "opset11"):
        return []
    data, given, *axes = operation.input_values()
    count = given.get_partial_shape()
    if not count.is_static:
        return []
    attributes = operation.get_attributes()
    by_scales = attributes["shape_calculation_mode"] == "scales"
    ignored = opset13.constant(np.ones(count.to_shape(), np.int32 if by_scales else np.float32)).output(0)
    sizes, scales = (ignored, given) if by_scales else (given, ignored)
    return [NodeFactory("opset4").create("Interpolate", [data, sizes, scales, *axes], attributes)]


def _is_version(operation: ov.Node, version: str) -> bool:
    return operation.get_type_info().version_id == version


_MAKERS: dict[str, Callable[[ov.Node], list[ov.Node]]] = {
    "Divide": _divide,
    "Interpolate": _interpolate,
    "LogSoftmax": _log_softmax,
    "MVN": _normalize,
    "Pad": _pad,
    "ScatterElementsUpdate": _scatter_elements,
    "Softmax": _softmax,
    "Subtract": _subtract,
}
