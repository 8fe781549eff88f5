"""Repairs of what OpenVINO computes wrongly in low precision, applied to its graph before it is compiled.

Each replaces a pattern that OpenVINO 2026.4 computes wrongly by an equivalent one. The defects were found by
`tools/chains.py`; `tests/unit/cpu_int8/test_repairs.py` holds the cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_cpu_bf16.decompositions import fusion_barrier

if TYPE_CHECKING:
    import openvino as ov


_WRONG_BEFORE_ROUNDING = frozenset({"ReduceMax", "ReduceMin"})


def repair_low_precision(model: ov.Model) -> None:
    """Insert a fusion barrier between a maximum or minimum over axes and the FakeQuantize that reads it.

    The kernel of the reduction computes the FakeQuantize, too, and then gives other numbers, off by dozens of steps.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "FakeQuantize":
            continue
        data = node.input_value(0)
        if data.get_node().get_type_name() in _WRONG_BEFORE_ROUNDING:
            node.input(0).replace_source_output(fusion_barrier(data).output(0))
