"""The windows of a pooling node: where they begin and end, and how many elements each averages."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir


class Windows(NamedTuple):
    """The windows of a node.

    Attributes:
        strides: Along each axis.
        pads: Begins and ends; the ends reach as far as the last window does.
        dilations: Along each axis.
        counts: How many elements each window averages, in the shape of the result without batch and channels.
    """

    strides: list[int]
    pads: list[int]
    dilations: list[int]
    counts: np.ndarray


def windows_of(node: ir.Node, extents: list[int], results: list[int]) -> Windows:
    """The windows of an AveragePool.

    Args:
        node: The node.
        extents: The spatial extents of its input.
        results: Those of its result.
    """
    rank, attributes = len(extents), node.attributes
    kernel = attributes.get_ints("kernel_shape", (1,) * rank)
    strides = list(attributes.get_ints("strides", (1,) * rank))
    dilations = list(attributes.get_ints("dilations", (1,) * rank))
    pads = list(attributes.get_ints("pads", (0,) * 2 * rank))
    auto = attributes.get_string("auto_pad", "NOTSET")
    included = bool(attributes.get_int("count_include_pad", 0))
    begins, ends, counts = [], [], []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        needed = (results[axis] - 1) * strides[axis] + reach - extents[axis]
        begin, end = pads[axis], pads[rank + axis]
        if auto.startswith("SAME"):
            total = max(needed, 0)
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
            end = total - begin
        elif auto == "VALID":
            begin = end = 0
        starts = np.arange(results[axis]) * strides[axis] - begin
        places = starts[:, None] + np.arange(kernel[axis]) * dilations[axis]
        first, last = (-begin, extents[axis] + end) if included else (0, extents[axis])
        counts.append(((places >= first) & (places < last)).sum(axis=1))
        begins.append(begin)
        ends.append(max(needed - begin, 0))
    each = reduce(np.multiply.outer, counts) if counts else np.ones(())
    return Windows(strides, [*begins, *ends], dilations, np.maximum(each, 1))
