"""Workarounds for loops in OpenVINO's graph, and for recurrent operators."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dovetail_cpu_bf16.decompositions import fusion_barrier

if TYPE_CHECKING:
    import openvino as ov

_BATCH_FIRST = [1, 0, 2]


def repair_loops(operations: list[ov.Node]) -> None:
    """Replace negative trip counts by zero, and conditions that are left out by a true one.

    OpenVINO takes -1 for "no limit" and other negative counts for large ones, and cannot write a Loop whose body reads
    a condition that is left out.
    """
    import numpy as np
    from openvino import opset13

    for node in operations:
        if node.get_type_name() != "Loop":
            continue
        count = node.input_value(0)
        if count.get_node().get_type_name() != "Constant":
            zero = opset13.convert_like(opset13.constant(np.int64(0)), count)
            node.input(0).replace_source_output(opset13.maximum(count, zero).output(0))
        for port in node.inputs():
            if port.get_source_output().get_node().get_type_name() == "NullNode":  # the condition, as the body reads it
                port.replace_source_output(opset13.constant(np.array(True)).output(0))


def separate_transposes(operations: list[ov.Node]) -> None:
    """Give every recurrent operator its own Transpose.

    OpenVINO inserts a Transpose to batch-first before each, and merges those of one value. A recurrent kernel reads
    either layout, so OpenVINO may drop its Transpose, and with it that of all other readers. It does not merge
    Transposes whose orders have different element types, nor those after different fusion barriers.
    """
    import numpy as np
    import openvino as ov
    from openvino import opset13

    # Not int64, which the Transposes of the model itself have, and not of 8 bits, which are refused.
    kinds = [ov.Type.i32, ov.Type.i16, ov.Type.u16, ov.Type.u32, ov.Type.u64]
    used: Counter[tuple[str, int]] = Counter()
    behind: dict[tuple[str, int], ov.Output] = {}
    for node in operations:
        if node.get_type_name() != "Transpose" or not any(map(_is_recurrent, node.output(0).get_target_inputs())):
            continue
        order = node.input_value(1).get_node()
        if order.get_type_name() != "Constant" or list(order.data) != _BATCH_FIRST:
            continue
        source = node.input_value(0)
        key = (source.get_node().get_name(), source.get_index())
        if used[key] and used[key] % len(kinds) == 0:
            behind[key] = fusion_barrier(behind.get(key, source)).output(0)
        own = opset13.constant(np.array(_BATCH_FIRST), kinds[used[key] % len(kinds)])
        node.input(0).replace_source_output(behind.get(key, source))
        node.input(1).replace_source_output(own.output(0))
        used[key] += 1


def _is_recurrent(port: ov.Input) -> bool:
    return port.get_index() == 0 and port.get_node().get_type_name().endswith("Sequence")
