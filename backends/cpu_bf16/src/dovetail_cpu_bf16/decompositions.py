"""Decompose operations that OpenVINO decomposes itself before it reads float32 marks.

The operations that it creates carry no mark, so `float32_marks.py` would have no effect on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["fusion_barrier", "decompose"]


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
    """Negate `value`, with a fusion barrier: OpenVINO turns a sum with a product by -1 back into a Subtract."""
    from openvino import opset13

    negative = opset13.multiply(value, _constant(-1))
    return [negative, fusion_barrier(negative)]


def fusion_barrier(value: ov.Output | ov.Node) -> ov.Node:
    """Return `value` to the power of one: an identity through which OpenVINO does not fuse."""
    from openvino import opset13

    return opset13.power(value, _constant(1))


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
    negative = _negative(largest)
    shifted = opset13.add(data, negative[-1])
    powers = opset13.exp(shifted)
    total = opset13.reduce_sum(powers, axes, True)
    log = opset13.log(total)
    below = _negative(log)
    return [largest, *negative, shifted, powers, total, log, *below, opset13.add(shifted, below[-1])]


def _axis(operation: ov.Node) -> int | None:
    axis, rank = operation.get_attributes()["axis"], operation.input_value(0).get_partial_shape().rank
    if axis >= 0:
        return axis
    return axis + rank.get_length() if rank.is_static else None


def _normalise(operation: ov.Node) -> list[ov.Node]:
    """Decompose an MVN into mean and variance over its axes."""
    from openvino import opset13

    data, axes = operation.input_value(0), operation.input_value(1)
    if _has_kernel(data, axes):
        return []
    attributes = operation.get_attributes()
    mean = opset13.reduce_mean(data, axes, True)
    negative = _negative(mean)
    centred = opset13.add(data, negative[-1])
    made = [mean, *negative, centred]
    if not attributes["normalize_variance"]:
        return made
    squared = opset13.multiply(centred, centred)
    mean_square = opset13.reduce_mean(squared, axes, True)
    # Changes no value: a mean of squares is not negative. It keeps OpenVINO from fusing the rest into one operation.
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
    return [*made, opset13.multiply(centred, made[-1])]


def _has_kernel(data: ov.Output, axes: ov.Output) -> bool:
    """Whether OpenVINO has a kernel for this MVN: over all spatial axes, with or without the channel axis."""
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


_MAKERS: dict[str, Callable[[ov.Node], list[ov.Node]]] = {
    "Divide": _divide,
    "LogSoftmax": _log_softmax,
    "MVN": _normalise,
    "Softmax": _softmax,
    "Subtract": _subtract,
}
