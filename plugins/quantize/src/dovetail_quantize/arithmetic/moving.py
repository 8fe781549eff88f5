"""Lowering of nodes that select or move integers: the node itself, on integers of one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import dtype_of

from dovetail_quantize.arithmetic.lowering import NotIntegerError
from dovetail_quantize.arithmetic.sums import centered, requantized, round_to, scaled

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.lowering import Lowering
    from dovetail_quantize.arithmetic.ports import Integers


# Operators whose integer kernel ONNX Runtime (1.32) lacks; they compute in float32, which represents all 16-bit
# integers.
_EIGHT_BITS = frozenset(
    ("ArgMax", "ArgMin", "DepthToSpace", "Max", "MaxPool", "Min", "Pad", "ReduceMax", "ReduceMin", "Resize",
     "SpaceToDepth")
)  # fmt: skip
_FLOATS_ALONE = frozenset(("GlobalMaxPool",))
_ALL_OPERANDS = frozenset(("Concat", "Max", "Min"))


def lower_movement(at: Lowering, side: dict[int, ir.Value] | None = None) -> list[ir.Value]:
    """Lower data movement and the selection of a maximum or minimum to the node itself, on integers.

    Args:
        at: The node.
        side: Replacements for other inputs, by index; they have the type of the result.
    """
    count = len(at.node.inputs) if at.node.op_type in _ALL_OPERANDS else 1
    operands = [at.operand(index) for index in range(count)]
    held = [result.held for result in at.results if result.held is not None]
    if any(result.activation is not None for result in at.results):
        raise NotIntegerError("an activation is computed together with it")
    if not held:
        raise NotIntegerError("nothing reads its result in integers")
    # With a single operand each result has its own scale, and TopK selects before requantization.
    behind = count == 1 and not side
    moved = operands[0] if behind else held[0]
    given = [operand.value if behind else requantized(at.nodes, operand, moved) for operand in operands]
    places = at.node.op_type == "MaxPool" and len(at.results) > 1 and at.node.outputs[1].uses()
    kind = np.float32 if places else _computed_in(at.node.op_type, moved)
    inputs = [at.nodes.cast(value, kind) for value in given]
    rest = list(at.node.inputs[count:])
    for index, value in (side or {}).items():
        rest[index - count : index - count + 1] = [at.nodes.cast(value, kind)]
    types = [kind if (dtype := dtype_of(value)).is_floating_point() else dtype for value in at.node.outputs]
    made = at.nodes.copy([*inputs, *rest], types)
    return [
        value if result.held is None else _behind(at, value, moved, result.held)
        for value, result in zip(made, at.results, strict=True)
    ]


def _behind(at: Lowering, value: ir.Value, moved: Integers, wanted: Integers) -> ir.Value:
    value = at.nodes.cast(value, moved.dtype)
    return requantized(at.nodes, type(moved)(value, moved.dtype, moved.scale, moved.zero, None), wanted)


def lower_pad(at: Lowering) -> list[ir.Value]:
    """Lower Pad; the constant to pad with becomes an integer."""
    if at.node.attributes.get_string("mode", "constant") != "constant":
        return lower_movement(at)
    held = at.result(0).held
    scale, zero = held.one_scale()
    given = at.node.inputs[2] if len(at.node.inputs) > 2 else None
    number = at.constant(2) if given is not None else np.zeros(())
    if number is None:
        raise NotIntegerError("the number that it adds is computed")
    if given is None and not zero:
        return lower_movement(at)
    added = round_to(float(number.item()) / scale, held, zero)
    return lower_movement(at, {2: at.nodes.constant(added, held.dtype.numpy(), "padded")})


def lower_resize(at: Lowering) -> list[ir.Value]:
    """Lower Resize with nearest-neighbor interpolation; other modes compute new numbers."""
    attributes = at.node.attributes
    mode = attributes.get_string("mode", "nearest")
    if mode != "nearest":
        raise NotIntegerError(f"its mode is {mode}")
    if attributes.get_string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise NotIntegerError("it fills in numbers from outside of the image")
    return lower_movement(at)


def lower_arg(at: Lowering) -> list[ir.Value]:
    """Lower ArgMax and ArgMin to the same node on integers."""
    held = at.operand(0)
    held.one_scale()
    kind = _computed_in(at.node.op_type, held)
    return at.nodes.copy([at.nodes.cast(held.value, kind)], [dtype_of(at.node.outputs[0])])


def lower_comparison(at: Lowering) -> list[ir.Value]:
    """Lower comparisons to integers, or to the real numbers where scales differ."""
    held = [at.operand(index) for index in (0, 1)]
    nodes = at.nodes
    if held[0].same_numbers(held[1]):
        inputs = [nodes.cast(one.value, np.int32) for one in held]
    else:
        inputs = [scaled(nodes, centered(nodes, one, np.int32), one.one_scale()[0], "scale") for one in held]
    return nodes.copy(inputs, [dtype_of(at.node.outputs[0])])


def _computed_in(op_type: str, held: Integers) -> type:
    alone = op_type in _FLOATS_ALONE or op_type in _EIGHT_BITS and held.dtype.bitwidth > 8
    return np.float32 if alone else held.dtype.numpy().type
