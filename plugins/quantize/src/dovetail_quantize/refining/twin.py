"""The quantised twin of a float model: the same nodes, with the conversions of its holdings around them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.ir.flat_graph import FlatGraph
from dovetail.ir.required import input_of, name_of
from dovetail_precision.held import Held
from dovetail_precision.sharing_groups import held_values

from dovetail_quantize.integers import parameters_of
from dovetail_quantize.quantise import Quantise
from dovetail_quantize.quantised_tensor import QuantisedTensor

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.holdings import Holding


class HeldConstants:
    """In which format, and with which parameters, a calibrated model holds its constants.

    Args:
        model: The model.
        ctx: Its run, with the holdings.
    """

    def __init__(self, model: Model, ctx: Context):
        held = held_values(ctx.analysis(FlatGraph, model), model.ir.opset_imports)
        holdings = {(one.value, one.format, one.group): one for one in ctx.outcome.holdings}
        self._at: dict[tuple[ir.Node, int], tuple[Held, Holding]] = {}
        for one in held:
            found = holdings[name_of(one.value), one.format, one.name]
            self._at |= {(use.node, use.index): (one, found) for use in one.uses if not use.is_output}

    def at(self, node: ir.Node, index: int) -> Holding | None:
        """The holding that an input of a node reads; None if it reads floats."""
        found = self._at.get((node, index))
        return None if found is None else found[1]


class QuantisedTwin:
    """A copy of a calibrated model that computes as the quantised one will.

    Args:
        model: The model; it stays as it is.
        ctx: Its run, with the holdings.

    Attributes:
        model: The copy.
        nodes: Its nodes by those of the original.
    """

    def __init__(self, model: Model, ctx: Context):
        self.model = model.clone()
        self.nodes = dict(zip(model.graph, list(self.model.graph)))
        said, counts = len(ctx.remarks), Counter(ctx.counts)
        Quantise().run(self.model, ctx)
        # What is said of the copy will be said again of the model.
        del ctx.remarks[said:]
        ctx.counts = counts

    def put(self, node: ir.Node, index: int, tensor: ir.TensorProtocol, holding: Holding | None) -> None:
        """Give the twin of a node another constant, held as the original one is."""
        value = input_of(self.nodes[node], index)
        producer = value.producer()
        if producer is None or holding is None:
            value.const_value = tensor
            return
        stored = input_of(producer, 0)
        stored.const_value = QuantisedTensor(tensor, holding.format, parameters_of(holding), name_of(stored))
