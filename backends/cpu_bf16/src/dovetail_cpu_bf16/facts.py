"""Facts about nodes for the limits of `cpu-bf16`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import bodies, used_values
from dovetail_placement import operator_facts
from dovetail_precision import is_integer

from dovetail_cpu_bf16.integer_bounds import SELECTION, fits, fits_as_control, stays_in_type
from dovetail_cpu_bf16.integer_uses import READ_NO_ELEMENTS, is_control, only_controls

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "channel_multiplier",
    "computes_integers",
    "dynamic_extents",
    "dynamic_graph",
    "foreign_activations",
    "indices_of_last_axis",
    "wide_integers",
    "nested_bodies",
    "padded_pointwise",
    "resizes_channels",
    "rounds",
    "strided_to_one_column",
]

# onnx.TensorProto.INT32, UINT32; UINT32, INT64, UINT64; UINT8, INT8; UINT16, INT16; BOOL; UINT16
_32_BITS, _ABOVE_31_BITS, _8_BITS, _16_BITS, _BOOL, _UINT16 = (6, 12), (12, 7, 13), (2, 3), (4, 5), 9, 4
_NARROW = frozenset({"FLOAT16", "BFLOAT16"})
_UNSIGNED = (12, 13)  # onnx.TensorProto.UINT32, UINT64
# Operators that OpenVINO computes in float32, regardless of the type: integers beyond 2^24 are rounded.
_ROUNDED = frozenset({
    "Clip", "Div", "Einsum", "Gemm", "MatMul", "Mod", "PRelu", "Pad", "Pow", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu",
    "ReverseSequence", "Trilu", "Where",
})  # fmt: skip
_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
# Operators whose results may leave the type of their operands. OpenVINO limits those of 8 bits, where ONNX wraps, and
# computes those of 16 bits in 32.
_LEAVES_TYPE = frozenset({"Abs", "Add", "Einsum", "Mul", "Neg", "Pow", "Sub"})
_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# Larger constants are not extents, and reading them would cost more than leaving the node to another backend.
_MAX_ELEMENTS = 4096  # elements
_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh"})
_INTEGER_BITS, _FLOAT_BITS = 31, 24
_MOST_LEVELS = 32  # of control flow; the backend's limit is far below, so deeper levels are not counted


def wide_integers(node: ir.Node) -> bool:
    """Check whether `node` reads or computes integers that OpenVINO may compute otherwise than ONNX.

    It has 32 bits and a sign for integers of 64 and for unsigned ones, and float32 for integers of some operators.
    Extents and indices are bounded by the memory of their tensors, small constants are inspected, and results computed
    from bounded integers are bounded (`integer_bounds.py`). Values that a node only takes extents, positions and
    indices from are judged where they are computed. Results of 8 and 16 bits must not leave their type.
    """
    if node.op_type in _COMPARISONS:
        return _compares_wide(node)
    if _leaves_type(node):
        return True
    rounded = node.op_type in _ROUNDED
    bits, types = (_FLOAT_BITS, (*_32_BITS, *_ABOVE_31_BITS)) if rounded else (_INTEGER_BITS, _ABOVE_31_BITS)
    read = [value for index, value in enumerate(node.inputs) if not is_control(node, index)]
    if node.op_type in READ_NO_ELEMENTS:
        read = []
    elif node.op_type == "Clip" and read[0] is not None and read[0].dtype not in _UNSIGNED:
        read = read[1:]  # whatever the engine is given within 32 bits, the result is exact if the bounds are
    for value in (*read, *node.outputs):
        if value is None or value.dtype not in types or _fits(value, bits):
            continue
        if fits_as_control(value, bits) and all(map(only_controls, node.outputs)):
            continue  # whatever else reads the value, this node takes an index or an extent from it
        if value.is_initializer() and node.op_type in SELECTION and all(_fits(one, bits) for one in node.outputs):
            continue  # OpenVINO replaces it by the largest integer of its own
        return True
    return False


def _compares_wide(node: ir.Node) -> bool:
    """Check whether a comparison may err: both sides are rounded, or one has more than 31 bits and a sign."""
    sides = [value for value in node.inputs if value is not None and value.dtype in (*_32_BITS, *_ABOVE_31_BITS)]
    if not sides:
        return False
    if any(value.dtype in _ABOVE_31_BITS and not _fits(value, _INTEGER_BITS) for value in sides):
        return True
    return not any(_fits(value, _FLOAT_BITS) for value in sides)  # rounding keeps the order with a number that is exact


def _leaves_type(node: ir.Node) -> bool:
    """Check whether a result of 8 or 16 bits may be one that OpenVINO rounds, limits, or does not wrap."""
    kind, operator = node.outputs[0].dtype, node.op_type
    if operator in _SCATTERS:
        adds = node.attributes.get_string("reduction", "none") in ("add", "mul")
        return adds and kind in (*_8_BITS, *_16_BITS, _BOOL)
    if operator == "Div":
        return kind in _8_BITS  # rounds to the nearest integer
    if operator in ("Cast", "CastLike"):  # of a float outside of the type, ONNX leaves the result open
        return kind in _16_BITS and is_integer(node.inputs[0]) and not stays_in_type(node)
    if operator == "BitwiseNot":
        return kind == _UINT16
    return operator in _LEAVES_TYPE and kind in (*_8_BITS, *_16_BITS) and not stays_in_type(node)


def _fits(value: ir.Value, bits: int) -> bool:
    """Check whether an integer fits in `bits` bits, as a number or, where that is all it is, as an extent."""
    constant = value.const_value if value.is_initializer() else None
    if constant is not None:
        return constant.size <= _MAX_ELEMENTS and not any(
            abs(int(number)) >> bits for number in constant.numpy().reshape(-1)
        )
    return fits(value, bits) or only_controls(value) and fits_as_control(value, bits)


def channel_multiplier(node: ir.Node) -> int | None:
    """Return the output channels per input channel of a depthwise convolution; 1 for others, None if unknown."""
    shape = node.inputs[1].shape if len(node.inputs) > 1 and node.inputs[1] is not None else None
    group = node.attributes.get_int("group", 1)
    if group == 1:
        return 1
    if shape is None or not isinstance(shape[0], int) or group < 1:
        return None
    return shape[0] // group if shape[1] == 1 else 1


def computes_integers(node: ir.Node) -> bool:
    """Check whether the first result of a node holds integers, such as sums of extents."""
    return is_integer(node.outputs[0])


def dynamic_extents(node: ir.Node) -> bool:
    """Check whether an input or output of `node`, or of one of its bodies, has a dynamic extent."""
    values = [*used_values(node), *node.outputs]
    for body in bodies(node):
        values.extend(tuple(body.outputs))
    return any(_is_dynamic(value) for value in values)


def dynamic_graph(node: ir.Node) -> bool:
    """Check whether `node`, or an input of its graph, has a dynamic extent."""
    graph = node.graph
    return dynamic_extents(node) or (graph is not None and any(_is_dynamic(value) for value in graph.inputs))


def foreign_activations(node: ir.Node) -> bool:
    """Check whether a recurrent operator has activations that OpenVINO does not have, or others in its second half."""
    given = [name.lower() for name in node.attributes.get_strings("activations", ())]
    half = len(given) // 2
    unequal = node.attributes.get_string("direction", "forward") == "bidirectional" and given[:half] != given[half:]
    return unequal or not frozenset(given) <= _ACTIVATIONS


def indices_of_last_axis(node: ir.Node) -> bool:
    """Check whether the second result of `node`, indices along the last axis, is used."""
    if len(node.outputs) < 2 or not (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return False
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    axis = node.attributes.get_int("axis", -1)
    return axis == -1 or shape is None or axis == len(shape) - 1


def nested_bodies(node: ir.Node) -> int:
    """Return the nesting depth of control flow at `node`, including itself; 0 without bodies, at most 32."""
    level, found = [node] if bodies(node) else [], 0
    while level and found < _MOST_LEVELS:
        level = [inner for outer in level for body in bodies(outer) for inner in body if bodies(inner)]
        found += 1
    return found


def padded_pointwise(node: ir.Node) -> bool:
    """Check whether a pointwise convolution has padding."""
    shape = node.inputs[1].shape if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return shape is not None and all(extent == 1 for extent in shape[2:]) and any(node.attributes.get_ints("pads", ()))


def resizes_channels(node: ir.Node) -> bool | None:
    """Check whether a Resize scales the batch or channel axis of a tensor of rank 3 or more; None if unknown."""
    data = node.inputs[0].shape if node.inputs[0] is not None else None
    if data is None:
        return None
    if len(data) < 3:
        return False
    axes = [axis % len(data) for axis in node.attributes.get_ints("axes", range(len(data)))]
    kinds = [value for value in node.inputs[2:4] if value is not None and value.name]
    if not kinds or kinds[0].const_value is None:
        return None
    by_size = len(node.inputs) > 3 and kinds[0] is node.inputs[3]
    wanted = dict(zip(axes, kinds[0].const_value.numpy().reshape(-1).tolist()))
    return any(wanted[axis] != (data[axis] if by_size else 1) for axis in (0, 1) if axis in wanted)


def rounds(node: ir.Node) -> bool:
    """Check whether a Cast rounds floats to a narrow type in which nothing is computed before they are cast back.

    OpenVINO removes both conversions, or keeps float32 in between.
    """
    wide = node.inputs[0].dtype if node.inputs[0] is not None else None
    if node.outputs[0].dtype is None or node.outputs[0].dtype.name not in _NARROW:
        return False
    if wide is not None and wide.name in _NARROW:
        return False
    moving, seen, cast_back = [node.outputs[0]], {node.outputs[0]}, False
    while moving:
        value = moving.pop()
        for reader in value.consumers():
            if reader.op_type == "Cast":
                cast_back = True
            elif not operator_facts().is_in("data-movement", reader.domain, reader.op_type):
                return False
            else:
                moving += [result for result in reader.outputs if result not in seen]
                seen.update(reader.outputs)
    return cast_back


def strided_to_one_column(node: ir.Node) -> bool:
    """Check whether a convolution with a stride along the last axis reduces that axis to one element."""
    shape = node.outputs[0].shape
    strides = node.attributes.get_ints("strides", ())
    return bool(strides) and strides[-1] > 1 and shape is not None and len(shape) > 2 and shape[-1] == 1


def _is_dynamic(value: ir.Value) -> bool:
    return value.shape is None or not all(isinstance(extent, int) for extent in value.shape)
