"""Chains of layers, equalised: the ranges of the channels between any two are equal in the weights of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir.required import constant_of

from dovetail_quantize.refining.channels import Pair, pair_from
from dovetail_quantize.refining.constants import Constants

if TYPE_CHECKING:
    from dovetail.passes import Context

    from dovetail_quantize.refining.layers import Layer


_MOST_SWEEPS = 30
_SETTLED = 0.01  # of the logarithm of a factor
_LARGEST_FACTOR = 2.0**8
_KEPT_BYTES = 64 << 20  # of magnitudes that are not read again in every sweep


def equalise_layers(found: Sequence[Layer], constants: Constants, ctx: Context) -> int:
    """Equalise all chains among layers; return how many pairs changed by more than a percent."""
    layers = {id(layer.node): layer for layer in found}
    pairs = [pair for layer in found if (pair := pair_from(layer, layers)) is not None]
    return sum(_equalised(chain, constants, ctx) for chain in _chains(pairs))


def _chains(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Pairs in runs in which each begins where the one before ends: no layer begins or ends two."""
    following = {id(pair.first.node): pair for pair in pairs}
    ends = {id(pair.second.node) for pair in pairs}
    for pair in pairs:
        if id(pair.first.node) not in ends:
            chain = [pair]
            while (after := following.get(id(chain[-1].second.node))) is not None:
                chain.append(after)
            yield chain


def _equalised(chain: list[Pair], constants: Constants, ctx: Context) -> int:
    """Equalise one chain; return how many pairs changed by more than a percent."""
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
            # A channel that nothing writes or reads, or one whose numbers are not finite, stays as it is.
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
        ctx.remark("passed", pair.second.node, "equalised", why, because=(pair.first.node,))
    return changed


class _Magnitudes:
    """The largest magnitudes in the weights of a chain, by channel, while factors change.

    Of each weight, the largest magnitude per output and input channel is kept, as long as there is room; what does not
    fit is read again. No two weights are in memory at the same time.
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
        """The largest magnitude of every output channel."""
        groups, _, columns = self._layers[index].layout.extents
        scaled = self._magnitudes(index) * self._inputs[index].reshape(groups, 1, columns)
        return scaled.max(axis=2).reshape(-1) * self._outputs[index]

    def of_inputs(self, index: int) -> np.ndarray:
        """The largest magnitude of every input channel, those of all groups in turn."""
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
