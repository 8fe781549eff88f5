"""Costs of borders between candidates: a call of each, and integers that are made of floats and back, timed alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from dovetail.ir import Model

from dovetail_tune.data_folders import save_arrays
from dovetail_tune.worker_pool import RaceMeasurement

if TYPE_CHECKING:
    from dovetail_tune.candidates import Candidate
    from dovetail_tune.journal import Journal
    from dovetail_tune.trial_runner import TrialRunner

_ELEMENTS = 1 << 20  # of the value that is converted: 4 MiB of float32, as a border of a large image net
_SIDE = 8  # extents of the product that a call computes, which takes no time
_ROUNDS, _LEAST = 8, 0.3
_HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
_SCALE = "<float s = {0.01}, uint8 z = {128}>"
_QUANTIZE, _DEQUANTIZE = "quantize", "dequantize"
_CONVERSIONS = {
    _QUANTIZE: f"(float[{_ELEMENTS}] x) => (uint8[{_ELEMENTS}] y) {_SCALE} {{ y = QuantizeLinear (x, s, z) }}",
    _DEQUANTIZE: f"(uint8[{_ELEMENTS}] x) => (float[{_ELEMENTS}] y) {_SCALE} {{ y = DequantizeLinear (x, s, z) }}",
}


class BorderCosts:
    """Times what a border adds to the segments on its sides, once per machine and candidate.

    Within one candidate segments are joined, so that their calls and conversions go. Where another candidate follows,
    there is a call of each, and the host makes integers of floats, or floats of integers, element by element.

    Args:
        runner: Runs trials, on the pool that times these costs, too.
        candidates: The candidates, the baseline first.
        integers: Whether each of them computes on integers at its borders.
        cache: Costs of earlier runs on this machine.
        folder: Where models and inputs are written.
    """

    def __init__(
        self,
        runner: TrialRunner,
        candidates: Sequence[Candidate],
        integers: Sequence[bool],
        cache: Journal,
        folder: Path,
    ):
        self._runner, self._candidates, self._integers = runner, candidates, integers
        self._cache, self._folder = cache, folder
        self._callers = runner.pool.settings.callers

    def measure(self) -> None:
        """Time what is not known yet; what fails, or has no time left, costs nothing.

        Raises:
            LostError: No machine answers.
        """
        calls = {self._named("call", one): self._job("call", one) for one in self._candidates}
        base = self._candidates[0]
        conversions = {self._named(what, base): self._job(what, base) for what in _CONVERSIONS}
        for jobs in (calls, conversions if any(self._integers) else {}):
            new = {name: job for name, job in jobs.items() if self._cache.find("border", name) is None}
            if new and not self._runner.deadline.is_over:
                self._time(new)

    def between(self, one: int, other: int, elements: int) -> float:
        """Return the seconds that a border takes.

        Args:
            one: Number of the candidate in front of it.
            other: Number of the candidate behind it.
            elements: How many numbers cross it.
        """
        if one == other:
            return 0.0
        base = self._candidates[0]
        found = sum(self._seconds("call", self._candidates[number]) for number in (one, other))
        if self._integers[one]:
            found += self._seconds(_DEQUANTIZE, base) * elements / _ELEMENTS
        if self._integers[other]:
            found += self._seconds(_QUANTIZE, base) * elements / _ELEMENTS
        return found

    def _time(self, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        numbered = {str(number): job for number, job in enumerate(jobs.values())}
        measurement = RaceMeasurement(numbered, _ROUNDS, math.inf, least=_LEAST)
        try:
            answer = self._runner.pool.measure(measurement, self._runner.deadline)()
        except TimeoutError:
            return
        for number, name in enumerate(jobs):
            if str(number) in answer.race.turns:
                self._cache.record("border", name, seconds=answer.race.seconds(str(number)))

    def _seconds(self, what: str, candidate: Candidate) -> float:
        known = self._cache.find("border", self._named(what, candidate))
        return known["seconds"] if known is not None else 0.0

    def _named(self, what: str, candidate: Candidate) -> str:
        return f"{what} {candidate.name} x{self._callers}"

    def _job(self, what: str, candidate: Candidate) -> dict[str, Any]:
        folder = self._folder / what
        if not folder.exists():
            _write(what, folder)
        outputs = self._folder / f"{what} {self._candidates.index(candidate)}"
        job = self._runner.job("segment", candidate)
        return {**job, "model": str(folder / "model.onnx"), "data": str(folder / "inputs"), "outputs": str(outputs)}


def _write(what: str, folder: Path) -> None:
    """Write the model that is timed, and its input."""
    numbers = np.random.default_rng(0)
    square: np.ndarray = numbers.standard_normal((_SIDE, _SIDE)).astype(np.float32)
    weight = ", ".join(map(str, square.ravel().tolist()))
    extents = f"float[{_SIDE}, {_SIDE}]"
    product = f"({extents} x) => ({extents} y) <{extents} w = {{{weight}}}> {{ y = MatMul (x, w) }}"
    model = Model(ir.from_onnx_text(_HEAD + _CONVERSIONS.get(what, product)))
    for number, node in enumerate(model.graph):
        node.name = f"n{number}"
    values = square
    if what == _QUANTIZE:
        values = numbers.standard_normal(_ELEMENTS).astype(np.float32)
    elif what == _DEQUANTIZE:
        values = numbers.integers(0, 256, _ELEMENTS).astype(np.uint8)
    (folder / "inputs").mkdir(parents=True)
    model.save(folder / "model.onnx", external=False)
    save_arrays(folder / "inputs" / "0.npz", {"x": values})
