"""The passes `keep-floats` and `accuracy-level`: the error of MatMulNBits' int8 activations, measured on data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.passes import Pass
from dovetail_runtime import RegionExecutor, batches, engines_of

from dovetail_cpu_int8.backend import BACKEND, is_here, weights_alone

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend


LEVEL = "accuracy_level"
MEASURED = "measured"
_EXACT, _ROUNDED = 1, 4
_OPERATORS = ("MatMulNBits", "QMoE")
_BATCHES = 4  # of the data, which an output is measured on
_LOSS = 0.5  # dB that `measured` accepts where no goal says how much
_GOAL = "min_snr"


@dataclass(frozen=True)
class _Floats:
    model: Model


class KeepFloats(Pass):
    """Keep the model as it is in floats, for `accuracy-level`; its weights are not copied.

    Given:  %y = MatMul(%x, %w), and the request has data and `cpu-int8:accuracy_level=4`
    Result: the same
    """

    name = "keep-floats"
    stage = "calibrate"
    for_backend = "cpu-int8"
    before = ("calibrate", "smooth")

    def run(self, model: Model, ctx: Context) -> bool:
        """Keep a copy of the graph where the level is measured."""
        if _measuring(ctx) is not None:
            ctx.kept.put(_Floats(model.clone()))
        return False


class AccuracyLevel(Pass):
    """Measure the error of `accuracy_level=4` on the data, and for `accuracy_level=measured` choose the level.

    Given:  %y = MatMulNBits<accuracy_level = 4>(%x, %w), and outputs are 0.1 dB further from the floats than with 1
    Result: the same, and a remark with the figures; with `measured`, level 1 if the goal on SNR is missed with 4, or,
            where there is none, more than half a decibel is lost
    """

    name = "accuracy-level"
    stage = "join"
    for_backend = "cpu-int8"
    requires = ("join",)
    after = ("half-scales",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Run the floats and both levels on the first batches of the data.

        Raises:
            DovetailError: The data does not fit, or no engine runs the model.
        """
        backend, kept_floats = _measuring(ctx), ctx.kept.get(_Floats)
        if backend is None or kept_floats is None or ctx.refusals.fresh or not _products(model):
            return False
        floats, rounded, exact = kept_floats.model, model.clone(), model.clone()
        for node in _products(exact):
            node.attributes[LEVEL] = ir.AttrInt64(LEVEL, _EXACT)
        host = engines_of([ctx.host], ctx.registry)
        both = host | engines_of([backend], ctx.registry)
        runs = [RegionExecutor(floats, host, backend_of=lambda _: ctx.host.name)]
        runs += [RegionExecutor(one, both) for one in (exact, rounded)]
        errors, number = _Errors(), 0
        for feeds, _ in islice(batches(floats, ctx.request.data), _BATCHES):
            errors.add(*(run.run(feeds) for run in runs))
            number += 1
        before, after = errors.worst()
        loss = before - after if before != after else 0.0  # both may be infinite
        goal = _goal(ctx)
        kept = after >= goal if goal is not None else loss <= _LOSS
        says = f"{LEVEL}=4 costs {loss:.2f} dB: {after:.2f} beside {before:.2f} dB with 1, on {number} batches"
        against = f"the goal of {goal:g} dB" if goal is not None else f"a loss of {_LOSS} dB"
        choosing = backend.chosen[LEVEL] == MEASURED
        chosen = f", so {LEVEL}=1 is chosen" if choosing and not kept else ""
        verdict = f"{against} is {'kept' if kept else 'exceeded' if goal is None else 'missed'}{chosen}"
        ctx.remark("passed" if kept else "missed", "", "accuracy-level", f"{says}; {verdict}")
        if not chosen:
            return False
        for node in _products(model):
            node.attributes[LEVEL] = ir.AttrInt64(LEVEL, _EXACT)
        model.touch()
        return True


def _measuring(ctx: Context) -> Backend | None:
    """Return the backend if the request has data to measure its accuracy level on, and one that rounds."""
    if ctx.request.data is None:
        return None
    for backend in ctx.backends:
        rounds = backend.name == BACKEND and weights_alone(backend) and backend.chosen["kernel"] == "nbits"
        if rounds and backend.chosen[LEVEL] != str(_EXACT):
            return backend
    return None


def _products(model: Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type in _OPERATORS and is_here(node)]


def _goal(ctx: Context) -> float | None:
    """Return the goal on SNR in decibels that the request records; None without one."""
    goals = [record[_GOAL] for record in ctx.request.options.values() if record.get(_GOAL) is not None]
    return float(goals[0]) if goals else None


class _Errors:
    """Energies of the outputs in floats, and of what two results differ from them."""

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}

    def add(
        self, floats: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray], rounded: Mapping[str, np.ndarray]
    ) -> None:
        """Add the outputs of a batch."""
        for name, wanted in floats.items():
            if wanted.dtype.kind == "f" and np.isfinite(wanted).all():
                wide = wanted.astype(np.float64)
                found = [np.square(wide).sum(), *(np.square(one[name] - wide).sum() for one in (exact, rounded))]
                self._sums[name] = self._sums.get(name, np.zeros(3)) + found

    def worst(self) -> tuple[float, float]:
        """Return the SNR of both results in dB, that of the output with the lowest one in the second."""
        found = list(self._decibels())
        return min(found, key=lambda pair: pair[1], default=(np.inf, np.inf))

    def _decibels(self) -> Iterator[tuple[float, float]]:
        for signal, *noises in self._sums.values():
            if signal:
                first, second = (10 * float(np.log10(signal / noise)) if noise else np.inf for noise in noises)
                yield first, second
