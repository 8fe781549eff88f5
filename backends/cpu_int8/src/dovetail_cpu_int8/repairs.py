"""Repairs of patterns that OpenVINO computes wrongly in low precision, applied to its graph before it is compiled.

Each inserts a fusion barrier into a pattern that OpenVINO 2026.4 computes wrongly or refuses. The defects were found by
`tools/chains.py`; `tests/unit/cpu_int8/test_repairs.py` holds the cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail_cpu_bf16 import UNFUSED, fusion_barrier, insert_barrier_after, is_read_by_others

if TYPE_CHECKING:
    import openvino as ov


_PASSING = frozenset({"Convert", "Multiply", "Reshape", "Squeeze", "Subtract", "Transpose", "Unsqueeze"})
_NOTHING = 1e-30
_CHANNELS = {"Convolution": 1, "GroupConvolution": 1, "MatMul": -1}  # the axis of the channels of a product's result
_FORKED = frozenset({"ReduceMax", "ReduceMin"})
_ELEMENTWISE = frozenset({"Add", "Divide", "Multiply", "Subtract"})


def repair_low_precision(model: ov.Model) -> None:
    """Apply all repairs to `model`, in place, if it computes anything in low precision.

    A maximum or minimum over axes with a FakeQuantize after it, even after further operators, is read twice: its kernel
    computes them all otherwise, a fusion barrier as well, and gives other numbers, off by dozens of steps.

    A fusion barrier is inserted after

    - an AvgPool with a scale per channel after it: OpenVINO folds the scale into the ranges of the FakeQuantize after
      that, and the kernel takes the range of one channel for all;
    - a MatMul whose result is scaled along another axis than its last: fusing the scale is refused;
    - a MatMul whose result has a scale per column in front of a FakeQuantize, if another MatMul reads that: computing
      all of them together gives any numbers;
    - a Concat that is quantized for a MatMul: OpenVINO quantizes the operands of the Concat, each in its own scale, and
      refuses the MatMul over them;
    - a Concat that is quantized to signed integers: a convolution of these is several steps off on some CPUs.

    A product of low precision that has no bias gets one that changes nothing (`_add_bias`).

    OpenVINO also refuses an Interpolate after a MatMul in 8 bits; the barrier comes before it. MaxPool after a
    convolution is repaired in every precision (`dovetail_cpu_bf16.pools`).
    """
    operations = model.get_ordered_ops()
    if not any(node.get_type_name() == "FakeQuantize" for node in operations):
        return
    multiplied = _reaching_matmul(operations)
    for node in operations:
        kind = node.get_type_name()
        fused = kind == "Concat" and (_is_quantized_for(node, multiplied) or _is_quantized_with_sign(node))
        if kind in _FORKED:
            _fork(node)
        elif fused or any(applies(node) for applies in _BARRED.get(kind, ())):
            insert_barrier_after(node)
        elif kind in _CHANNELS and _has_no_bias(node, kind):
            _add_bias(node, _CHANNELS[kind])
        elif kind == "Interpolate":
            node.input(0).replace_source_output(fusion_barrier(node.input_value(0)).output(0))


def _add_bias(node: ov.Node, axis: int) -> None:
    """Add a bias that changes no result to a product with a constant, whose channels are along an axis.

    On one thread, OpenVINO computes any numbers where two MatMuls of one shape without a bias follow each other. Where
    the result of a convolution without a bias is read in floats and quantized, and its extents are open, it gives zeros
    to what reads the integers. A bias of equal numbers is no bias to it.
    """
    import numpy as np
    from openvino import opset13

    readers = list(node.output(0).get_target_inputs())
    shape = node.output(0).get_partial_shape()
    channels = shape[axis].get_length()
    bias = np.float32(_NOTHING) * np.arange(1, channels + 1, dtype=np.float32)
    behind = len(shape) - 1 - axis if axis >= 0 else -1 - axis
    biased = opset13.add(node.output(0), opset13.constant(bias.reshape(channels, *[1] * behind)))
    biased.set_friendly_name(f"{node.get_friendly_name()}/bias")
    biased.output(0).get_tensor().set_names(node.output(0).get_names())
    node.output(0).get_tensor().set_names(set())
    for port in readers:
        port.replace_source_output(biased.output(0))


def _has_no_bias(node: ov.Node, kind: str) -> bool:
    """Check whether a product multiplies by dequantized constants, and no Add of a constant alone reads its result."""
    weight, shape = node.input_value(1).get_node(), node.output(0).get_partial_shape()
    if shape.rank.is_dynamic or not shape.rank.get_length() or shape[_CHANNELS[kind]].is_dynamic:
        return False
    while weight.get_type_name() in _PASSING and weight.get_input_size():
        weight = weight.input_value(0).get_node()
    readers = [port.get_node().get_type_name() for port in node.output(0).get_target_inputs()]
    if weight.get_type_name() != "Constant":
        return False
    if kind != "MatMul":
        return len(readers) > 1
    return "Result" not in readers and readers != ["Add"]


def _fork(node: ov.Node) -> None:
    """Let two operators read a result, so that none of them is computed together with it, and give the same numbers."""
    from openvino import opset13

    readers = list(node.output(0).get_target_inputs())
    if any(port.get_node().get_type_name() == "Result" for port in readers):
        return
    same = opset13.maximum(node.output(0), fusion_barrier(node.output(0)).output(0))
    for port in readers:
        port.replace_source_output(same.output(0))


def _is_read_elementwise(node: ov.Node) -> bool:
    return is_read_by_others(node, UNFUSED)


def _is_scaled_and_quantized(node: ov.Node) -> bool:
    """Check whether the result is multiplied by a constant with several numbers and then quantized, maybe biased."""
    while True:
        readers = [port.get_node() for port in node.output(0).get_target_inputs()]
        if len(readers) != 1 or readers[0].get_type_name() not in ("Add", "Multiply"):
            return False
        reader = readers[0]
        constants = [one.get_node() for one in reader.input_values() if one.get_node().get_type_name() == "Constant"]
        if not constants:
            return False
        scales = reader.get_type_name() == "Multiply"
        if scales and max(constants[0].output(0).get_shape(), default=1) > 1:
            after = [port.get_node().get_type_name() for port in reader.output(0).get_target_inputs()]
            return "FakeQuantize" in after
        node = reader


def _reaching_matmul(operations: list[ov.Node]) -> set[str]:
    """Return the names of operations whose result a MatMul reads, maybe moved or converted in between."""
    found: set[str] = set()
    for node in reversed(operations):
        readers = [port.get_node() for output in node.outputs() for port in output.get_target_inputs()]
        kinds = [(reader.get_type_name(), reader.get_name()) for reader in readers]
        if any(kind == "MatMul" or kind in _PASSING and name in found for kind, name in kinds):
            found.add(node.get_name())
    return found


def _is_quantized_for(node: ov.Node, multiplied: set[str]) -> bool:
    readers = [port.get_node() for port in node.output(0).get_target_inputs()]
    return any(reader.get_type_name() == "FakeQuantize" and reader.get_name() in multiplied for reader in readers)


def _is_quantized_with_sign(node: ov.Node) -> bool:
    """Check whether a FakeQuantize gives signed integers of the result."""
    for port in node.output(0).get_target_inputs():
        reader = port.get_node()
        if reader.get_type_name() != "FakeQuantize":
            continue
        lowest = reader.input_value(3).get_node()
        if lowest.get_type_name() == "Constant" and lowest.data.min() < 0:
            return True
    return False


def _is_scaled_across_rows(node: ov.Node) -> bool:
    """Check whether a reader combines the result with a constant that varies along another axis than the last."""
    for port in node.output(0).get_target_inputs():
        reader = port.get_node()
        if reader.get_type_name() not in _ELEMENTWISE:
            continue
        other = reader.input_value(1 - port.get_index())
        shape = other.get_partial_shape()
        varies = shape.is_static and any(extent != 1 for extent in list(shape.to_shape())[:-1])
        if varies and other.get_node().get_type_name() == "Constant":
            return True
    return False


_BARRED: dict[str, tuple[Callable[[ov.Node], bool], ...]] = {
    "AvgPool": (_is_read_elementwise,),
    "MatMul": (_is_scaled_across_rows, _is_scaled_and_quantized),
}
