"""The `equalize` pass: cross-layer equalization (Nagel et al., 2019, "Data-Free Quantization")."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dovetail.ir import constant_of, input_of, is_onnx, shape_of

from dovetail_quantize.refining.layers import ConstantReplacer, layers_of, refined_layers
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.steps import EQUALIZE

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer


def equalize_model(model: Model, ctx: Context, everywhere: bool) -> bool:
    """Equalize the layers of a model that its request refines, or all of them; return whether any changed."""
    record = RefinementRecord.of(ctx)
    nodes = list(model.graph)
    found = layers_of(nodes) if everywhere else refined_layers(nodes, EQUALIZE, record.steps)
    changed = equalize_layers(found, ConstantReplacer(model, ctx), ctx)
    if changed:
        model.touch()
        ctx.count("equalized", changed)
        record.count(EQUALIZE, changed)
    return bool(changed)


_KEPT = ("Relu", "LeakyRelu", "PRelu", "Identity", "Dropout")
_POOLED = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "LpPool", "GlobalLpPool")
_RESHAPED = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_RESIZED = ("Pad", "Resize")


class Channels(NamedTuple):
    """Layout of channels along one axis of a value.

    Attributes:
        axis: The axis, counted from the first.
        repeat: Number of consecutive elements along it that belong to one channel.
    """

    axis: int
    repeat: int = 1

    def behind(self, node: ir.Node) -> Channels | None:
        """Return the channels in the first result of a node that reads them.

        None if scaling an input channel by a positive factor does not scale that channel of the result.
        """
        before, after = input_of(node, 0).shape, node.outputs[0].shape
        if not is_onnx(node) or before is None or after is None:
            return None
        if node.op_type in _KEPT or node.op_type in _POOLED and self.axis == 1 or _is_relu(node):
            return self
        if node.op_type == "Transpose":
            order = node.attributes.get_ints("perm", list(range(len(before)))[::-1])
            return Channels(list(order).index(self.axis), self.repeat)
        if node.op_type in _RESHAPED:
            return self._reshaped(before, after)
        if node.op_type in _RESIZED and len(before) == len(after) and _pads_zeros(node):
            known = isinstance(before[self.axis], int) and before[self.axis] == after[self.axis]
            return self if known else None
        return None

    def _reshaped(self, before: ir.Shape, after: ir.Shape) -> Channels | None:
        if self.axis != 1 or len(after) < 2 or before[0] != after[0] or not isinstance(after[1], int):
            return None
        if after[1] == before[1]:
            return self
        inner = [extent for extent in before[2:] if isinstance(extent, int)]
        if len(after) == 2 and isinstance(before[1], int) and len(inner) == len(before) - 2:
            return Channels(1, self.repeat * math.prod(inner))
        return None


class Pair(NamedTuple):
    """Two layers connected channel by channel, where the second is the only reader of the first.

    Attributes:
        first: The producer.
        second: The consumer.
        repeat: Number of input channels of the second per output channel of the first.
    """

    first: Layer
    second: Layer
    repeat: int


def pair_from(layer: Layer, layers: dict[int, Layer]) -> Pair | None:
    """Return the pair that starts at a layer, or None.

    Args:
        layer: The first layer.
        layers: Candidates for the second layer, by `id` of their node.
    """
    value, rank = layer.output, layer.output.shape
    if layer.added_to is not None:
        value = layer.added_to.outputs[0]
    elif layer.node.op_type == "MatMul" and _adds(layer.output):
        return None
    if rank is None:
        return None
    channels: Channels | None = Channels(1 if layer.is_convolution else len(rank) - 1)
    while channels is not None:
        reader = only_reader(value)
        if reader is None:
            return None
        second = layers.get(id(reader))
        if second is not None and reader.inputs[0] is value:
            axis = 1 if second.is_convolution else len(shape_of(value)) - 1
            groups, _, inputs = second.layout.extents
            fits = channels.axis == axis and groups * inputs == layer.channels * channels.repeat
            return Pair(layer, second, channels.repeat) if fits else None
        if reader.inputs[0] is not value or any(output.uses() for output in reader.outputs[1:]):
            return None
        channels, value = channels.behind(reader), reader.outputs[0]
    return None


def only_reader(value: ir.Value) -> ir.Node | None:
    """Return the only reader of a value; None if there are more uses, or if the value is a graph output."""
    uses = value.uses()
    producer = value.producer()
    if producer is None or len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    return node if node.graph is producer.graph else None


def _adds(value: ir.Value) -> bool:
    reader = only_reader(value)
    return reader is not None and reader.op_type == "Add"


def _is_relu(node: ir.Node) -> bool:
    """Check whether a node is a Clip from zero to infinity."""
    if node.op_type != "Clip" or len(node.inputs) < 2 or any(value is not None for value in node.inputs[2:]):
        return False
    return _is_zero(node.inputs[1])


def _pads_zeros(node: ir.Node) -> bool:
    """Check whether scaling commutes with the node's padding: it pads with zeros or not at all."""
    if node.op_type != "Pad" or node.attributes.get_string("mode", "constant") != "constant":
        return node.op_type != "Resize" or node.attributes.get_float("extrapolation_value", 0.0) == 0.0
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return node.attributes.get_float("value", 0.0) == 0.0 and (value is None or _is_zero(value))


def _is_zero(value: ir.Value | None) -> bool:
    tensor = value.const_value if value is not None and value.is_initializer() else None
    return tensor is not None and tensor.size == 1 and float(tensor.numpy().reshape(())) == 0.0


_MOST_SWEEPS = 30
_SETTLED = 0.01  # change of the logarithm of a factor
_LARGEST_FACTOR = 2.0**8
_KEPT_BYTES = 64 << 20  # bytes of magnitudes that are kept instead of read again in every sweep


def equalize_layers(found: Sequence[Layer], constants: ConstantReplacer, ctx: Context) -> int:
    """Equalize all chains of layers; return how many pairs changed by more than a percent."""
    layers = {id(layer.node): layer for layer in found}
    pairs = [pair for layer in found if (pair := pair_from(layer, layers)) is not None]
    return sum(_equalized(chain, constants, ctx) for chain in _chains(pairs))


def _chains(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Yield maximal chains of pairs, each beginning at the layer where the previous one ends."""
    following = {id(pair.first.node): pair for pair in pairs}
    ends = {id(pair.second.node) for pair in pairs}
    for pair in pairs:
        if id(pair.first.node) not in ends:
            chain = [pair]
            while (after := following.get(id(chain[-1].second.node))) is not None:
                chain.append(after)
            yield chain


def _equalized(chain: list[Pair], constants: ConstantReplacer, ctx: Context) -> int:
    """Equalize one chain; return how many pairs changed by more than a percent."""
    layers = [chain[0].first, *(pair.second for pair in chain)]
    weights = _Magnitudes(layers)
    factors = [np.ones(pair.first.channels) for pair in chain]
    for _ in range(_MOST_SWEEPS):
        largest = 0.0
        for index, pair in enumerate(chain):
            written = weights.of_outputs(index)
            read = weights.of_inputs(index + 1).reshape(-1, pair.repeat).max(axis=1)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = np.sqrt(written / read)
            # Keep channels without weights on one side, and channels with nonfinite ones.
            step = np.where(np.isfinite(step) & (step > 0), step, 1.0)
            step = np.clip(factors[index] * step, 1 / _LARGEST_FACTOR, _LARGEST_FACTOR) / factors[index]
            factors[index] *= step
            weights.scale(index, 1 / step, None)
            weights.scale(index + 1, None, np.repeat(step, pair.repeat))
            largest = max(largest, float(np.abs(np.log(step)).max()))
        if largest < _SETTLED:
            break
    changed = 0
    for pair, by in zip(chain, factors):
        if np.abs(np.log(by)).max() < _SETTLED:
            continue
        constants.scale(pair.first, 1 / by, None)
        constants.scale(pair.second, None, np.repeat(by, pair.repeat))
        changed += 1
        why = (
            f"its {by.size} input channels are scaled by {by.min():.3g} to {by.max():.3g}, and those that "
            f"'{pair.first.node.name}' computes by the inverse: the weights of both have equal ranges then"
        )
        ctx.remark("passed", pair.second.node, "equalized", why, because=(pair.first.node,))
    return changed


class _Magnitudes:
    """Per-channel largest magnitudes of the weights of a chain, while factors change.

    For each weight, the largest magnitude per output and input channel is kept while memory allows; other weights are
    read again. No two weights are in memory at the same time.
    """

    def __init__(self, layers: Sequence[Layer]):
        self._layers = layers
        self._kept: dict[int, np.ndarray] = {}
        self._room = _KEPT_BYTES
        self._outputs = [np.ones(layer.channels) for layer in layers]
        self._inputs = [np.ones(layer.layout.extents[0] * layer.layout.extents[2]) for layer in layers]

    def scale(self, index: int, outputs: np.ndarray | None, inputs: np.ndarray | None) -> None:
        """Scale the channels of one weight."""
        if outputs is not None:
            self._outputs[index] = self._outputs[index] * outputs
        if inputs is not None:
            self._inputs[index] = self._inputs[index] * inputs

    def of_outputs(self, index: int) -> np.ndarray:
        """Return the largest magnitude of every output channel."""
        groups, _, columns = self._layers[index].layout.extents
        scaled = self._magnitudes(index) * self._inputs[index].reshape(groups, 1, columns)
        return scaled.max(axis=2).reshape(-1) * self._outputs[index]

    def of_inputs(self, index: int) -> np.ndarray:
        """Return the largest magnitude of every input channel, group by group."""
        groups, rows, _ = self._layers[index].layout.extents
        scaled = self._magnitudes(index) * self._outputs[index].reshape(groups, rows, 1)
        return scaled.max(axis=1).reshape(-1) * self._inputs[index]

    def _magnitudes(self, index: int) -> np.ndarray:
        found = self._kept.get(index)
        if found is None:
            layer = self._layers[index]
            found = np.abs(layer.layout.matrices(constant_of(layer.weight).numpy())).max(axis=3)
            if found.nbytes <= self._room:
                self._room -= found.nbytes
                self._kept[index] = found
        return found
