"""Functions of one number as tables: an entry for every integer, computed in float64 when compiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail_quantize.arithmetic.functions import FUNCTIONS
from dovetail_quantize.arithmetic.scaling import bounds_of, round_to
from dovetail_quantize.arithmetic.sums import lower_prelu

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.arithmetic.lowering import Lowering


def lower_function(at: Lowering) -> list[ir.Value]:
    """A function of one number: its entry in a table.

    A table of a signed type begins with the entry of 0, and those of negative integers stand at its end, because ONNX
    counts negative indices from there. GatherElements reads ten times as fast as Gather in ONNX Runtime.
    """
    if at.node.op_type == "PRelu" and (slope := at.constant(1)) is not None and slope.size > 1:
        return lower_prelu(at)
    nodes, held, result = at.nodes, at.operand(0), at.result(0)
    scale, zero = held.one_scale()
    wanted, middle = result.held.one_scale()
    integers = np.arange(held.low, held.high + 1, dtype=np.int64)
    with np.errstate(all="ignore"):
        real = FUNCTIONS[at.node.op_type](at, (integers - zero) * np.float64(scale))
        entries = round_to(real / wanted, result.held, middle)
    entries = np.clip(entries, *bounds_of(result.held, result.activation))
    stored = np.roll(entries, held.low).astype(result.held.dtype.numpy())
    table = nodes.constants.get(stored, nodes.named("table"))
    flat = nodes.constant([-1], np.int64, "flat")
    index = nodes.cast(nodes.make("Reshape", [held.value, flat], held.dtype), np.int32)
    found = nodes.make("GatherElements", [table, index], result.held.dtype, axis=0)
    shape = at.shape
    if shape is not None and all(isinstance(extent, int) for extent in shape):
        back = nodes.constant(np.array(shape.numpy(), np.int64), np.int64, nodes.named("shape"))
    else:
        back = nodes.make("Shape", [held.value], np.int64)
    return [nodes.make("Reshape", [found, back], result.held.dtype, at.shape)]
