"""The edit `bpu-unit-conv`: an identity depthwise convolution, as an active neighbor of another node."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, insert_beside, shape_of
from dovetail.plugin import DovetailError, Editor

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


def why_no_unit_conv(node: ir.Node, side: str) -> str:
    """Return why no unit convolution can be inserted on a side of a node; empty if one can."""
    value = _value(node, side)
    shape = None if value is None else value.shape
    if value is None or shape is None or len(shape) != 4 or not isinstance(shape[1], int):
        found = "an unknown shape" if shape is None else f"shape {shape}"
        return f"has {found}; a convolution takes images, N C H W, with a known number of channels"
    return "" if value.dtype == ir.DataType.FLOAT else "holds no floats"


class UnitConv(Editor):
    """Inserts a 1x1 convolution with one group per channel and weights of one, before or after a node.

    The toolchain quantizes every convolution that it can. Hence a passive operator next to one gets a threshold, and a
    region that ends with one returns full-precision sums.

    Source: the unit convolution (dirac weights, no bias) that the vendor recommends adding to a model before export.
    """

    sides = ("before", "after")

    def apply(self, model: Model, node: ir.Node, side: str, ctx: Context) -> list[ir.Node]:
        """Insert the convolution at the first input or output of `node`.

        Raises:
            DovetailError: There is no float image with a known number of channels on that side.
        """
        value, why = _value(node, side), why_no_unit_conv(node, side)
        if value is None or why:
            where = f"bpu-unit-conv {side} '{node.name}': '{'' if value is None else value.name}'"
            raise DovetailError(f"{where} {why}", "name a node that computes images of floats, or the other side")
        shape = shape_of(value)
        channels = cast("int", shape[1])
        names = ctx.analysis(FreshNames, model)
        weight = self._weight(model, names.fresh(f"{value.name}_unit"), channels)

        def convolution(read: ir.Value) -> ir.Node:
            made = ir.node("Conv", [read, weight], {"group": channels}, name=names.fresh(f"{node.name}_unit"))
            made.outputs[0].name = names.fresh(f"{value.name}_same")
            made.outputs[0].type, made.outputs[0].shape = value.type, shape
            return made

        return [insert_beside(node, side, convolution)]

    def _weight(self, model: Model, name: str, channels: int) -> ir.Value:
        kernel = ir.Tensor(np.ones((channels, 1, 1, 1), np.float32), name=name)
        weight = ir.Value(name=name, type=ir.TensorType(kernel.dtype), shape=kernel.shape, const_value=kernel)
        model.graph.register_initializer(weight)
        return weight


def _value(node: ir.Node, side: str) -> ir.Value | None:
    if side == "after":
        return node.outputs[0]
    return node.inputs[0] if node.inputs else None
