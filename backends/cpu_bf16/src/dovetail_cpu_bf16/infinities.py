"""Workarounds for infinities, which some kernels of OpenVINO mishandle; see `workarounds.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov


_COMPARISONS = frozenset({
    "Equal", "Greater", "GreaterEqual", "IsFinite", "IsInf", "IsNaN", "Less", "LessEqual", "NotEqual",
})  # fmt: skip
# Operations that pass values on unchanged, including infinities.
_PASSING = frozenset({
    "Broadcast", "Convert", "ConvertLike", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip


def compare_with_infinity(operations: list[ov.Node]) -> None:
    """Replace IsInf by comparisons with infinity.

    The kernel detects infinities only in model inputs, not in results of other operators.
    """
    import numpy as np
    from openvino import opset13

    for node in operations:
        if node.get_type_name() != "IsInf":
            continue
        value, attributes = node.input_value(0), node.get_attributes()
        negative, positive = (attributes.get(f"detect_{name}", True) for name in ("negative", "positive"))
        if not negative and not positive:
            continue
        infinity = opset13.convert_like(opset13.constant(np.float32(np.inf if positive else -np.inf)), value)
        made = opset13.equal(opset13.abs(value) if negative and positive else value, infinity)
        made.set_friendly_name(node.get_friendly_name())
        made.output(0).set_names(node.output(0).get_names())
        node.output(0).replace(made.output(0))


def reduce_infinite_rows(operations: list[ov.Node]) -> None:
    """Make ReduceMax of all -inf return -inf, and ReduceMin of all inf return inf.

    The kernels start from the lowest or largest finite number, and return it. The difference matters if the result is
    compared, as in attention, to find fully masked rows.
    """
    import numpy as np
    from openvino import opset13

    for node in operations:
        bounds = {"ReduceMax": -np.inf, "ReduceMin": np.inf}
        bound = bounds.get(node.get_type_name())
        kind = node.output(0).get_element_type()
        if bound is None or not kind.is_real() or not any(map(_is_compared, _readers(node))):
            continue
        data, axes = node.input_value(0), node.input_value(1)
        infinity = opset13.convert_like(opset13.constant(np.float32(bound)), data)
        whole = opset13.reduce_logical_and(opset13.equal(data, infinity), axes, node.get_attributes()["keep_dims"])
        readers = list(node.output(0).get_target_inputs())
        made = opset13.select(whole, infinity, node.output(0))
        made.set_friendly_name(f"{node.get_friendly_name()}/infinite")
        for reader in readers:
            reader.replace_source_output(made.output(0))
        made.output(0).set_names(node.output(0).get_names())
        node.output(0).set_names(set())


def _readers(node: ov.Node) -> Iterator[ov.Node]:
    """Yield the readers of a node's result, through nodes that pass it on."""
    waiting, seen = [node], set()
    while waiting:
        for port in waiting.pop().output(0).get_target_inputs():
            reader = port.get_node()
            if reader.get_name() in seen:
                continue
            seen.add(reader.get_name())
            yield reader
            if reader.get_type_name() in _PASSING and port.get_index() == 0:
                waiting.append(reader)


def _is_compared(node: ov.Node) -> bool:
    return node.get_type_name() in _COMPARISONS
