"""The `reserve-biases` pass: biases for the layers that have none, so that there is one to correct."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.fresh_names import FreshNames
from dovetail.ir.required import input_of
from dovetail.passes import Pass

from dovetail_quantize.refining.steps import BIAS, wanted

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.constants import Constants


_RESERVED = "dovetail.reserved_bias"
_AT = 2


@dataclass(frozen=True)
class ReserveBiases(Pass):
    """Give layers without a bias one of zeros, if biases are going to be corrected.

    Given:  %y = Conv(%x, %w)
    Result: %y = Conv(%x, %w, %y_bias), with %y_bias = 0

    It is done before anything is decided, so that the bias gets a format like any other. `correct-biases` removes those
    that it does not change.
    """

    name = "reserve-biases"
    stage = "analyse"
    before = ("edge-kinds",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Add constants.

        Raises:
            DovetailError: The request contradicts a replayed plan.
        """
        if not wanted(ctx, BIAS):
            return False
        import numpy as np
        import onnx_ir as ir

        from dovetail_quantize.refining.constants import float_tensor
        from dovetail_quantize.refining.layers import layers_of

        names, changed = ctx.analysis(FreshNames, model), False
        for layer in layers_of(model.graph):
            node = layer.node
            if layer.bias is not None or node.op_type == "MatMul":
                continue
            name = names.fresh(f"{node.outputs[0].name}_bias")
            tensor = float_tensor(np.zeros(layer.channels), name)
            value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
            model.graph.register_initializer(value)
            node.resize_inputs(_AT + 1)
            node.replace_input_with(_AT, value)
            node.meta[_RESERVED] = True
            changed = True
        if changed:
            model.touch()
        return changed


def drop_reserved(model: Model, constants: Constants, ctx: Context, used: Collection[ir.Node] = ()) -> bool:
    """Remove reserved biases, with their holdings, from all nodes but those that use theirs; tell if there were any."""
    kept, dropped = set(used), set()
    for node in model.graph:
        if node.meta.pop(_RESERVED, False) and node not in kept:
            dropped.add(input_of(node, _AT).name)
            constants.drop_input(node, _AT)
    if dropped:
        ctx.outcome.holdings = [holding for holding in ctx.outcome.holdings if holding.value not in dropped]
        model.touch()
    return bool(dropped)
