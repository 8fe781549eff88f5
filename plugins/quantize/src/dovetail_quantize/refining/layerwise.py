"""Layerwise refinement: run a float model and its quantized model together, and refine the layers of each block.

Values between blocks are kept in memory while there is room, and else in temporary files. The float model runs once per
batch, some blocks at a time. The quantized model runs block by block, and a second time where refining changes more
than a mean. Besides these values, memory holds a few blocks and one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dovetail.errors import DovetailError
from dovetail.ir import input_of, name_of, used_values
from dovetail_runtime.data.batches import batches

from dovetail_quantize.refining.activation_cache import ActivationCache
from dovetail_quantize.refining.float_outputs import FloatOutputs
from dovetail_quantize.refining.partition import blocks_of, same_blocks
from dovetail_quantize.refining.quantized_model import Replica, quantized_model_of

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer
    from dovetail_quantize.refining.quantized_model import QuantizedModel


class Refiner(Protocol):
    """Refines one layer."""

    @property
    def shift(self) -> np.ndarray | None:
        """What refining added to each channel of the layer's output in the quantized model; None if it did more."""

    def see(self, inputs: np.ndarray, computed: np.ndarray, wanted: np.ndarray) -> None:
        """Process one batch.

        Args:
            inputs: The layer's input in the quantized model.
            computed: Its output there.
            wanted: Its output in the float model.

        Raises:
            DovetailError: A number is infinite or NaN.
        """

    def refine(self, quantized_model: QuantizedModel) -> bool:
        """Refine the layer after the last batch, and update its quantized model; return whether that one changed."""


def walk(model: Model, ctx: Context, layers: Sequence[Layer], make: Callable[[Layer, int], Refiner], what: str) -> None:
    """Refine layers in graph order: each sees the output of the refined layers before it.

    Args:
        model: The calibrated float model; the refiners change its constants.
        ctx: Its context, with data and quantized values.
        layers: The layers to refine.
        make: Creates the refiner of a layer, given the number of layers in its block.
        what: Description for the progress bar.

    Where extents are computed, as the durations of speech, the two models may have different ones in a batch: no number
    of one belongs to a number of the other, so the layer does not see that batch, with a remark.

    Raises:
        DovetailError: The data does not match the model, or holds nonfinite numbers.
    """
    nodes = list(model.graph)
    blocks = blocks_of(nodes, [layer.node for layer in layers])
    block_of = {node: number for number, block in enumerate(blocks) for node in block}
    by_block: list[list[Layer]] = [[] for _ in blocks]
    for layer in layers:
        by_block[block_of[layer.node]].append(layer)
    inputs = ActivationCache()
    number = _keep_inputs(model, ctx, inputs)
    quantized_model = quantized_model_of(model, ctx)
    read = {layer: input_of(quantized_model.nodes[layer.node], 0) for layer in layers}
    computed = {layer: quantized_model.nodes[layer.node].outputs[0] for layer in layers}
    exact = FloatOutputs(model, blocks, by_block, inputs, number, ctx)
    quantized_blocks = same_blocks(
        quantized_model.model.graph, {quantized_model.nodes[node]: at for node, at in block_of.items()}, len(blocks)
    )
    rounded = Replica(quantized_model.model, quantized_blocks, [*read.values(), *computed.values()], inputs, ctx)
    last = max(block_of[layer.node] for layer in layers)
    for block in range(last + 1):
        if ctx.progress:
            ctx.progress(what, block + 1, last + 1)
        refiners = {layer: make(layer, len(by_block[block])) for layer in by_block[block]}
        runner = rounded.runner(block)
        apart: Counter[Layer] = Counter()
        with rounded.writing() as write:
            for floats, given in zip(exact.of(block), rounded.read(block, number)):
                results = runner.run(given)
                there = {**given, **results}
                for layer, refiner in refiners.items():
                    made = there[name_of(computed[layer])]
                    if made.shape == floats[layer].shape:
                        refiner.see(there[name_of(read[layer])], made, floats[layer])
                    else:
                        apart[layer] += 1
                write(rounded.leaving(block, results))
        for layer, batches_apart in apart.items():
            why = f"on {batches_apart} of {number} batches it computes other extents than the float model: left out"
            ctx.remark("missed", layer.node, "other-extents", why)
        changed = {layer: refiner for layer, refiner in refiners.items() if refiner.refine(quantized_model)}
        if changed and block < last:
            inside = {value for node in blocks[block] for value in used_values(node)}
            shifts = {
                layer: refiner.shift
                for layer, refiner in changed.items()
                if refiner.shift is not None and layer.output not in inside
            }
            if len(shifts) == len(changed):
                for layer, shift in shifts.items():  # so nothing is computed again
                    rounded.change(name_of(computed[layer]), partial(_shifted, layer=layer, by=shift), number)
            else:
                runner = rounded.runner(block)
                with rounded.writing() as write:
                    for given in rounded.read(block, number):
                        write(rounded.leaving(block, runner.run(given)))
        rounded.forget(block)


def _shifted(array: np.ndarray, layer: Layer, by: np.ndarray) -> np.ndarray:
    """Add to the channels of a layer's output."""
    return array + (by.reshape(-1, *[1] * (array.ndim - 2)) if layer.is_convolution else by)


def _keep_inputs(model: Model, ctx: Context, cache: ActivationCache) -> int:
    """Store the data of the request, which may be a stream; return the number of batches."""
    number = 0
    with cache.writing() as write:
        for feeds, _ in batches(model, ctx.request.data):
            write(feeds)
            number += 1
    if not number:
        raise DovetailError("the data holds no batch to refine on", "give at least one; a hundred samples are usual")
    return number
