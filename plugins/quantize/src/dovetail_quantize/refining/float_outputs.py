"""Outputs of layers in the float model, to which those of the quantized model are compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import name_of

from dovetail_quantize.refining.activation_cache import ActivationCache
from dovetail_quantize.refining.layers import RefinedTensor
from dovetail_quantize.refining.quantized_model import Replica

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer

_WINDOW = 8
"""Blocks that run as one: nothing changes in the float model."""


class FloatOutputs:
    """Outputs of layers in the float model.

    Args:
        model: The calibrated model.
        blocks: Its nodes by block.
        layers: Its layers by block.
        inputs: Cache with the model's inputs.
        batches: Number of batches in the cache.
        ctx: The context.
    """

    def __init__(
        self,
        model: Model,
        blocks: Sequence[Sequence[ir.Node]],
        layers: Sequence[Sequence[Layer]],
        inputs: ActivationCache,
        batches: int,
        ctx: Context,
    ):
        floats = model.clone()
        for value in floats.graph.initializers.values():
            if isinstance(value.const_value, RefinedTensor):
                value.const_value = value.const_value.source  # the reference is the weight before rounding
        copies = dict(zip(model.graph, list(floats.graph)))
        self._names = [{layer: name_of(copies[layer.node].outputs[0]) for layer in there} for there in layers]
        starts = range(0, len(blocks), _WINDOW)
        windows = [[copies[node] for block in blocks[at : at + _WINDOW] for node in block] for at in starts]
        outputs = [copies[layer.node].outputs[0] for there in layers for layer in there]
        self._replica = Replica(floats, windows, outputs, inputs, ctx)
        self._found = ActivationCache(inputs)
        self._batches = batches

    def of(self, block: int) -> Iterator[dict[Layer, np.ndarray]]:
        """Yield the outputs of a block's layers, batch by batch; blocks are asked for once and in order."""
        if block % _WINDOW == 0:
            self._run(block // _WINDOW)
        names = self._names[block]
        for values in self._found.read(names.values(), self._batches):
            yield {layer: values[name] for layer, name in names.items()}
        for name in names.values():
            self._found.drop(name)

    def _run(self, window: int) -> None:
        names = {name for there in self._names[window * _WINDOW : (window + 1) * _WINDOW] for name in there.values()}
        runner = self._replica.runner(window)
        with self._replica.writing() as write, self._found.writing() as keep:
            for given in self._replica.read(window, self._batches):
                results = runner.run(given)
                keep({name: array for name, array in results.items() if name in names})
                write(self._replica.leaving(window, results))
        self._replica.forget(window)
