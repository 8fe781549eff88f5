"""Lowering of averages and sums over axes or windows: exact sums and one multiplier."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dovetail.ir import shape_of

from dovetail_quantize.arithmetic.lowering import NotIntegerError
from dovetail_quantize.arithmetic.ports import known_extents
from dovetail_quantize.arithmetic.sums import bounds_of, centered, rounded, scaled

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.lowering import Lowering
    from dovetail_quantize.arithmetic.ports import Integers


class Windows(NamedTuple):
    """Pooling windows of a node.

    Attributes:
        strides: Along each axis.
        pads: Begins, then ends; the ends are extended to the last window's end.
        dilations: Along each axis.
        counts: Number of elements that each window averages, in the spatial shape of the result.
    """

    strides: list[int]
    pads: list[int]
    dilations: list[int]
    counts: np.ndarray


def windows_of(node: ir.Node, extents: list[int], results: list[int]) -> Windows:
    """Compute the windows of an AveragePool.

    Args:
        node: The node.
        extents: The spatial extents of its input.
        results: The spatial extents of its result.
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


_INT32 = 1 << 31


def lower_global_average(at: Lowering) -> list[ir.Value]:
    """Lower GlobalAveragePool to a ReduceSum over the spatial axes."""
    return [_reduced(at, at.operand(0), list(range(2, at.rank)), True, True)]


def lower_reduced_sum(at: Lowering) -> list[ir.Value]:
    """Lower ReduceMean and ReduceSum."""
    held, attributes = at.operand(0), at.node.attributes
    given = at.constant(1) if len(at.node.inputs) > 1 and at.node.inputs[1] is not None else None
    if given is None and len(at.node.inputs) > 1 and at.node.inputs[1] is not None:
        raise NotIntegerError("its axes are computed")
    shape = held.value.shape
    if shape is None:
        raise NotIntegerError("the rank of its input is not known")
    listed = attributes.get_ints("axes", ()) if given is None else given.reshape(-1).tolist()
    if not listed and bool(attributes.get_int("noop_with_empty_axes", 0)):
        raise NotIntegerError("it reduces nothing")
    axes = sorted({int(axis) % len(shape) for axis in listed}) if listed else list(range(len(shape)))
    kept = bool(attributes.get_int("keepdims", 1))
    return [_reduced(at, held, axes, kept, at.node.op_type == "ReduceMean")]


def lower_average_pool(at: Lowering) -> list[ir.Value]:
    """Lower AveragePool to a depthwise ConvInteger with a kernel of ones."""
    nodes, held, result = at.nodes, at.operand(0), at.result(0)
    (channels, *shape), (_, *wanted) = (known_extents(value) for value in (held.value, at.results[0].value))
    windows = windows_of(at.node, shape, wanted)
    kernel = at.node.attributes.get_ints("kernel_shape", ())
    if math.prod(kernel) * 255 * 255 >= _INT32:
        raise NotIntegerError("the sum of a window may be too large for int32")
    alone = nodes.constant([-1, 1, *shape], np.int64, nodes.named("channels"))
    ones = nodes.constant(np.ones((1, 1, *kernel)), np.uint8, nodes.named("ones"))
    total = None
    for part in at.parts.of(nodes, held):
        zeros = [nodes.constant(zero, np.uint8, "zero_point") for zero in (part.zero, 0)]
        planes = nodes.make("Reshape", [part.value, alone], np.uint8)
        term = nodes.make(
            "ConvInteger", [planes, ones, *zeros], np.int32,
            strides=windows.strides, pads=windows.pads, dilations=windows.dilations,
        )  # fmt: skip
        term = scaled(nodes, term, float(part.factor))
        total = term if total is None else nodes.make("Add", [total, term], np.float64)
    back = nodes.constant([-1, channels, *wanted], np.int64, nodes.named("shape"))
    total = nodes.make("Reshape", [total, back], np.float64, at.shape)
    multiplier = held.one_scale()[0] / (result.held.one_scale()[0] * windows.counts)
    if np.unique(multiplier).size == 1:
        multiplier = multiplier.reshape(-1)[0]
    return [rounded(nodes, scaled(nodes, total, multiplier), result.held, bounds_of(result.held, result.activation))]


def _reduced(at: Lowering, held: Integers, axes: list[int], kept: bool, mean: bool) -> ir.Value:
    nodes, result, shape = at.nodes, at.result(0), shape_of(held.value)
    extents = [extent for axis in axes if isinstance(extent := shape[axis], int)]
    if len(extents) < len(axes):
        raise NotIntegerError("how many numbers are summed is not known before it runs")
    count = math.prod(extents)
    kind = np.int32 if held.largest * count < _INT32 else np.int64
    over = nodes.constant(axes, np.int64, "axes")
    total = nodes.make("ReduceSum", [centered(nodes, held, kind), over], kind, at.shape, keepdims=int(kept))
    multiplier = held.one_scale()[0] / (result.held.one_scale()[0] * (count if mean else 1))
    return rounded(nodes, scaled(nodes, total, multiplier), result.held, bounds_of(result.held, result.activation))
