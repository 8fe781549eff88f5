"""The source model, segment by segment on the host: the inputs of every segment, and what its noise does to outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dovetail.ir import name_of
from dovetail.passes import Context, Request
from dovetail_runtime.data.batches import batches
from dovetail_verify.runners import reference_runner

from dovetail_tune.data_folders import save_arrays
from dovetail_tune.pairwise_noise import ErrorsAtOutputs
from dovetail_tune.segments import names_of_inputs

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import PluginSet

    from dovetail_tune.segments import Segment

BATCHES = 4  # samples of noise; each is a run of what follows a segment
Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], dict[str, np.ndarray]]


class ExactValues:
    """Exact inputs of every segment in files, and the exact outputs of the model.

    Attributes:
        errors: Errors at the outputs of the segments that `noise_of` was asked about.

    Args:
        model: The prepared model that was cut.
        segments: Its segments.
        data: The samples to run.
        folder: Where inputs of segments are written.
        plugins: The plugins.

    Raises:
        DovetailError: The host cannot run a segment.
    """

    def __init__(self, model: Model, segments: Sequence[Segment], data: object, folder: Path, plugins: PluginSet):
        self._folder = folder
        self._plugins = plugins
        self._outputs: list[dict[str, np.ndarray]] = []
        self._loaded: tuple[int, Run | None] = -1, None
        self.errors = ErrorsAtOutputs()
        self.names = [name_of(value) for value in model.graph.outputs]
        runs = [self._run(segment.model) for segment in segments]
        for number, (feeds, _) in enumerate(batches(model, data)):
            if number == BATCHES:
                break
            values: dict[str, np.ndarray] = dict(feeds)
            for segment, run in zip(segments, runs):
                given = {name: values[name] for name in names_of_inputs(segment.model)}
                self.inputs_of(segment).mkdir(parents=True, exist_ok=True)
                save_arrays(self.inputs_of(segment) / f"{number:06}.npz", given)
                found = run(given)
                if others := self._others(segment):
                    self._beside(segment).mkdir(exist_ok=True)
                    save_arrays(self._beside(segment) / f"{number:06}.npz", {name: values[name] for name in others})
                values |= found
            self._outputs.append({name: values[name] for name in self.names if name in values})

    def inputs_of(self, segment: Segment) -> Path:
        """Return the folder with the inputs of a segment, a file per batch."""
        return self._folder / f"segment_{segment.index}" / "inputs"

    def _beside(self, segment: Segment) -> Path:
        """Return the folder with the values that pass a segment by, a file per batch."""
        return self._folder / f"segment_{segment.index}" / "beside"

    def _others(self, segment: Segment) -> list[str]:
        """Return the names of the values that what follows a segment reads from what is in front of it."""
        if segment.rest is None:
            return []
        own = {name_of(value) for value in segment.model.graph.outputs}
        return [name for name in names_of_inputs(segment.rest) if name not in own]

    def noise_of(self, segment: Segment, outputs: Path, choice: int = 0) -> list[float]:
        """Return the noise energy at each output of the model, relative to its signal, if only `segment` is inexact.

        Args:
            segment: The segment.
            outputs: A folder with its inexact outputs, a file per batch.
            choice: The candidate that made them, by which `errors` keeps what they leave at the outputs.

        Raises:
            DovetailError: The host cannot run what follows the segment.
        """
        if segment.index != self._loaded[0]:  # one at a time, for all of its candidates
            self._loaded = segment.index, None if segment.rest is None else self._run(segment.rest)
        rest = self._loaded[1]
        needed = names_of_inputs(segment.rest) if segment.rest is not None else []
        noise, signal = np.zeros(len(self.names)), np.zeros(len(self.names))
        differences: list[list[np.ndarray]] = []
        for number, (path, exact) in enumerate(zip(sorted(outputs.glob("*.npz")), self._outputs)):
            with np.load(path) as file:
                values = dict(file)
            if self._others(segment):
                with np.load(self._beside(segment) / f"{number:06}.npz") as file:
                    values |= file
            if rest is not None:
                values |= rest({name: values[name] for name in needed})
            for position, name in enumerate(self.names):
                # What the segment does not reach is exact.
                error, energy = _energies(values.get(name, exact[name]), exact[name])
                noise[position] += error
                signal[position] += energy
            differences.append([_difference(values.get(name, exact[name]), exact[name]) for name in self.names])
        scale = [1 / s**0.5 if s > 0 else 0.0 for s in signal.tolist()]
        found = [[error * one for error, one in zip(batch, scale)] for batch in differences]
        self.errors.add((segment.index, choice), found, [_share(n, s) for n, s in zip(noise.tolist(), signal.tolist())])
        return [_share(n, s) for n, s in zip(noise.tolist(), signal.tolist())]

    def _run(self, model: Model) -> Run:
        return reference_runner(model, Context(Request(), plugins=self._plugins))


def _energies(given: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Return the energy of the difference and of the exact values; infinite for values that are no approximation."""
    if given.shape != exact.shape:
        return np.inf, 1.0
    if exact.dtype.kind not in "f" and exact.dtype.type.__module__ != "ml_dtypes":
        return 0.0, 0.0  # indices have no noise; they are compared when the whole plan is measured
    one, other = given.astype(np.float64), exact.astype(np.float64)
    if not np.isfinite(one).all():
        return (np.inf, 1.0) if np.isfinite(other).all() else (0.0, 0.0)
    return float(np.sum((one - other) ** 2)), float(np.sum(other**2))


def _difference(given: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the error of an output; none where it has another shape, or holds indices or infinities."""
    if given.shape != exact.shape or not _energies(given, exact)[1]:
        return np.zeros(0)
    error = given.astype(np.float64) - exact.astype(np.float64)
    return error if np.isfinite(error).all() else np.zeros(0)


def _share(noise: float, signal: float) -> float:
    return noise / signal if signal > 0 else (0.0 if noise == 0 else np.inf)
