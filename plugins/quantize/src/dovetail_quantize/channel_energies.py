"""Energies of the channels that products read, measured on data: errors of weights are weighted by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import FLOAT32, name_of

from dovetail_quantize.observing import observe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context


class _Energy:
    """Sums the squares of every channel along the last axis of a value."""

    extrema = None
    format: Format = FLOAT32

    def __init__(self) -> None:
        self.sums = np.zeros(0)

    def update(self, array: np.ndarray) -> None:
        """Add the numbers of a batch; batches with infinities and scalars are left out."""
        if not array.ndim or not np.isfinite(array).all():
            return
        sums = np.square(array.reshape(-1, array.shape[-1]), dtype=np.float64).sum(axis=0)
        self.sums = self.sums + sums if self.sums.shape == sums.shape else sums


def energies_of(model: Model, values: Iterable[ir.Value], ctx: Context) -> Mapping[ir.Value, np.ndarray]:
    """Run the model on the data once, and return the energy of each channel of values, relative to their mean.

    Args:
        model: A float model.
        values: Values of its main graph.
        ctx: The context of the run, which has data.

    Raises:
        DovetailError: The data does not fit, or the host cannot run the model.
    """
    watched = {value: _Energy() for value in values}
    observe(model, {name_of(value): [energy] for value, energy in watched.items()}, ctx)
    return {value: energy.sums / energy.sums.mean() for value, energy in watched.items() if energy.sums.any()}
