"""Workarounds for kernels of OpenVINO that cut numbers; see `workarounds.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov


def normalize_bias(operations: list[ov.Node]) -> None:
    """Replace an LRN whose bias is not an integer by one with the bias 1 or -1, and a factor.

    The kernel cuts the bias to an integer. `x / (b + s)^beta` is `|b|^-beta * x / (±1 + s / |b|)^beta`.
    """
    import numpy as np
    from openvino import opset13

    for node in operations:
        attributes = node.get_attributes() if node.get_type_name() == "LRN" else {}
        bias = attributes.get("bias", 1.0)
        if bias == int(bias):
            continue
        size, alpha, beta = (attributes[name] for name in ("size", "alpha", "beta"))
        scaled = opset13.lrn(*node.input_values(), alpha / abs(bias), beta, math.copysign(1.0, bias), size)
        factor = opset13.constant(np.float32(abs(bias) ** -beta))
        made = opset13.multiply(scaled, opset13.convert_like(factor, scaled))
        scaled.set_friendly_name(f"{node.get_friendly_name()}/unscaled")
        made.set_friendly_name(node.get_friendly_name())
        made.output(0).set_names(node.output(0).get_names())
        node.output(0).replace(made.output(0))


def compare_with_zero(operations: list[ov.Node]) -> None:
    """Replace conversions of 32-bit integers to Booleans by comparisons with zero: the least integer becomes false."""
    import numpy as np
    from openvino import opset13

    for node in operations:
        if node.get_type_name() != "Convert" or node.get_output_element_type(0).get_type_name() != "boolean":
            continue
        source = node.input_value(0)
        if source.get_element_type().get_type_name() not in ("i32", "i64"):
            continue
        zero = opset13.constant(np.array(0), source.get_element_type())
        made = opset13.not_equal(source, zero)
        made.set_friendly_name(node.get_friendly_name())
        made.output(0).set_names(node.output(0).get_names())
        node.output(0).replace(made.output(0))
