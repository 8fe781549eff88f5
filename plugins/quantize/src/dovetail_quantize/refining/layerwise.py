"""Layerwise refinement: run a float model and its quantized model together, and refine the layers of each block.

Values between blocks are kept in temporary files, so that every node runs once per batch in the float model, and twice
in the quantized model: before and after its block is refined. Memory holds one block and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from dovetail.errors import DovetailError
from dovetail.ir import input_of, name_of
from dovetail_runtime.data.batches import batches
from dovetail_transforms.regions.regions import used_values

from dovetail_quantize.refining.layers import RefinedTensor
from dovetail_quantize.refining.quantized_model import ActivationCache, QuantizedModel, Replica

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer


_MOST = 256
"""Most blocks of one model: engines load each block three times, so their number must not grow with the model."""


def blocks_of(nodes: Sequence[ir.Node], refined: Collection[ir.Node]) -> list[list[ir.Node]]:
    """Partition nodes in graph order into blocks.

    A block ends before a layer that depends on another layer of the same block, so that each layer is refined for the
    output of the refined layers before it. If a model has more than 256 such steps, blocks are longer.

    Args:
        nodes: The nodes of a main graph.
        refined: The layers to refine among them.
    """
    refined = set(refined)
    shortest = -(-len(nodes) // _MOST)
    blocks: list[list[ir.Node]] = [[]]
    behind: set[ir.Value] = set()
    for node in nodes:
        depends = any(value in behind for value in used_values(node))
        if depends and node in refined and len(blocks[-1]) >= shortest:
            blocks.append([])
            behind.clear()
            depends = False
        if depends or node in refined:
            behind.update(node.outputs)
        blocks[-1].append(node)
    return [block for block in blocks if block]


def same_blocks(graph: ir.Graph, block_of: Mapping[ir.Node, int], number: int) -> list[list[ir.Node]]:
    """Return the blocks of a graph with additional nodes: each of these joins the block that reads it first.

    Args:
        graph: The graph.
        block_of: The block number of every original node.
        number: Number of blocks.
    """
    found: dict[ir.Node, int] = {}
    for node in graph:
        producers = (value.producer() for value in used_values(node))
        behind = max((found[producer] for producer in producers if producer in found), default=0)
        found[node] = block_of.get(node, behind)
    for node in reversed(graph):
        if node not in block_of:
            readers = [found[use.node] for value in node.outputs for use in value.uses() if use.node in found]
            found[node] = min(readers, default=found[node])
    blocks: list[list[ir.Node]] = [[] for _ in range(number)]
    for node in graph:
        blocks[found[node]].append(node)
    return blocks


class Refiner(Protocol):
    """Refines one layer."""

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
    floats = model.clone()
    for value in floats.graph.initializers.values():
        if isinstance(value.const_value, RefinedTensor):
            value.const_value = value.const_value.source  # the reference is the weight before rounding
    copies = dict(zip(model.graph, list(floats.graph)))
    quantized_model = QuantizedModel(model, ctx)
    read = {layer: input_of(quantized_model.nodes[layer.node], 0) for layer in layers}
    computed = {layer: quantized_model.nodes[layer.node].outputs[0] for layer in layers}
    wanted = {layer: copies[layer.node].outputs[0] for layer in layers}
    exact = Replica(floats, [[copies[node] for node in block] for block in blocks], wanted.values(), inputs, ctx)
    quantized_blocks = same_blocks(
        quantized_model.model.graph, {quantized_model.nodes[node]: at for node, at in block_of.items()}, len(blocks)
    )
    rounded = Replica(quantized_model.model, quantized_blocks, [*read.values(), *computed.values()], inputs, ctx)
    last = max(block_of[layer.node] for layer in layers)
    for block in range(last + 1):
        if ctx.progress:
            ctx.progress(what, block + 1, last + 1)
        refiners = [(layer, make(layer, len(by_block[block]))) for layer in by_block[block]]
        runners = exact.runner(block), rounded.runner(block)
        with exact.writing() as write_exact, rounded.writing() as write_rounded:
            for float_inputs, twin_inputs in zip(exact.read(block, number), rounded.read(block, number)):
                floats_there, there = runners[0].run(float_inputs), {**twin_inputs, **runners[1].run(twin_inputs)}
                for layer, refiner in refiners:
                    names = [name_of(values[layer]) for values in (read, computed, wanted)]
                    refiner.see(there[names[0]], there[names[1]], floats_there[names[2]])
                write_exact(exact.leaving(block, floats_there))
                write_rounded(rounded.leaving(block, there))
        changed = [refiner.refine(quantized_model) for _, refiner in refiners]
        if any(changed) and block < last:
            runner = rounded.runner(block)
            with rounded.writing() as write_rounded:
                for twin_inputs in rounded.read(block, number):
                    write_rounded(rounded.leaving(block, runner.run(twin_inputs)))
        exact.forget(block)
        rounded.forget(block)


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
