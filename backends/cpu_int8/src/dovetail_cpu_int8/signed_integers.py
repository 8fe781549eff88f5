"""Activations of OpenVINO's graph in int8: the integers of uint8 with a zero point of 128, less 128."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import openvino as ov


_MIDDLE = 128
# What moves numbers, or holds them in integers and back.
_PASSING = frozenset({
    "Convert", "FakeQuantize", "Multiply", "Reshape", "Squeeze", "Subtract", "Transpose", "Unsqueeze",
})  # fmt: skip


def use_signed_integers(model: ov.Model) -> int:
    """Hold operands of MatMul that are quantized to uint8 with a zero point of 128 in int8 without one, in place.

    ONNX Runtime is fast with unsigned activations only. OpenVINO multiplies two computed operands in 8 bits, as those
    of attention, only if they have no zero point.

    Given:  FakeQuantize to 0..255, Convert to u8, Convert to f32, Subtract 128
    Result: FakeQuantize to -128..127, Convert to i8, Convert to f32

    A value that others read stays as it is: OpenVINO takes the signed operand of a Concat for unsigned.

    Returns:
        The number of changed values.
    """
    changed, operations = 0, model.get_ordered_ops()
    multiplied = _read_by_matmul_only(operations)
    for convert in operations:
        if convert.get_type_name() == "Convert" and convert.get_output_element_type(0).get_type_name() == "u8":
            fake = convert.input_value(0).get_node()
            alone = fake.get_type_name() == "FakeQuantize" and len(fake.output(0).get_target_inputs()) == 1
            alone = alone and convert.get_name() in multiplied
            if alone and fake.input_value(0).get_node().get_type_name() != "Concat":
                changed += _make_signed(fake, convert)
    return changed


def _make_signed(fake: ov.Node, convert: ov.Node) -> bool:
    """Replace the integers of one value; return False if a reader needs them as they are."""
    import numpy as np
    from openvino import opset13

    wide = [port.get_node() for port in convert.output(0).get_target_inputs()]
    ends = [_constant(fake.input_value(index)) for index in (3, 4)]
    if fake.get_attributes()["levels"] != 256 or [*map(_number, ends)] != [0, 255]:
        return False
    shifted = [port.get_node() for node in wide for output in node.outputs() for port in output.get_target_inputs()]
    if not wide or not shifted or any(node.get_type_name() != "Convert" for node in wide):
        return False
    if not all(node.get_type_name() == "Subtract" and _is_middle(node.input_value(1)) for node in shifted):
        return False
    shapes = [end.shape for end in ends if end is not None]
    low, high = (opset13.constant(np.full(shape, end, np.float32)) for shape, end in zip(shapes, (-128, 127)))
    data, *bounds = (fake.input_value(index) for index in range(3))
    signed = opset13.fake_quantize(data, *bounds, low, high, 256)
    signed.set_friendly_name(fake.get_friendly_name())
    integers = opset13.convert(signed, "i8")
    integers.set_friendly_name(convert.get_friendly_name())
    for node in wide:
        node.input(0).replace_source_output(integers.output(0))
    for node in shifted:
        node.output(0).replace(node.input_value(0))
    return True


def _read_by_matmul_only(operations: list[ov.Node]) -> set[str]:
    """Return the names of operations whose result only MatMul reads, after scales, moves and further conversions."""
    found: set[str] = set()
    for node in reversed(operations):
        ports = [port for output in node.outputs() for port in output.get_target_inputs()]
        if ports and all(_leads_to_matmul(port, found) for port in ports):
            found.add(node.get_name())
    return found


def _leads_to_matmul(port: ov.Input, found: set[str]) -> bool:
    reader = port.get_node()
    if reader.get_type_name() == "MatMul":
        return True
    passes = reader.get_type_name() in _PASSING and not port.get_index() and _has_constants(reader)
    return passes and reader.get_name() in found


def _has_constants(node: ov.Node) -> bool:
    """Check whether all inputs of an operation but the first are constants."""
    return all(_constant(value) is not None for value in node.input_values()[1:])


def _is_middle(value: ov.Output) -> bool:
    return _number(_constant(value)) == _MIDDLE


def _constant(value: ov.Output) -> np.ndarray | None:
    """Return the numbers of a constant, also after operations that only convert or reshape it."""
    node = value.get_node()
    while node.get_type_name() in ("Convert", "Reshape", "Broadcast") and node.get_input_size():
        node = node.input_value(0).get_node()
    return node.data if node.get_type_name() == "Constant" else None


def _number(array: np.ndarray | None) -> float | None:
    """Return the number that all elements are; None if they differ."""
    if array is None or not array.size or (array != array.flat[0]).any():
        return None
    return float(array.flat[0])
