"""One region at work: on the first engine that takes it, and on the next one when that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning.placement import HOST
from dovetail.runtime.engine import EngineError, Executed, RegionModel
from dovetail.runtime.guard import GuardedEngine, GuardedSession
from dovetail.runtime.shapes import ShapeMismatch, shape_mismatches

if TYPE_CHECKING:
    import numpy as np

    from dovetail.runtime.regions import Region

__all__ = ["Refusal", "RegionRunner"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An engine that did not take a region.

    Attributes:
        region: The region.
        engine: Name of the engine.
        error: What it said.
    """

    region: Region
    engine: str
    error: EngineError


class RegionRunner:
    """Runs one region; safe to call from several threads.

    Args:
        region: The region.
        model: The region as a model of its own.
        engines: The engines of its backend that are available here, in order of preference.
        options: Passed to the engine.
        note: Told what the user should know.

    Attributes:
        region: The region.
        engine: Name of the engine that runs it now.
        refusals: Engines that did not take it, when it was loaded or later.

    Raises:
        DovetailError: No engine takes the region; all reasons are given.
    """

    def __init__(
        self,
        region: Region,
        model: RegionModel,
        engines: Sequence[GuardedEngine],
        options: Mapping[str, object],
        note: Callable[[str], None],
    ):
        self.region = region
        self.refusals: list[Refusal] = []
        self._model = model
        self._waiting = list(engines)
        self._options = options
        self._note = note
        self._lock = threading.Lock()
        # Other engines are judged by the host's, so there is nobody to judge that by.
        self._shapes_are_settled = region.backend == HOST
        self._engine, self._session = self._load_next()

    @property
    def engine(self) -> str:
        """Name of the engine that runs the region now."""
        return self._engine.name

    @property
    def index(self) -> int:
        """Number of the region in the order in which regions run."""
        return self.region.index

    @property
    def backend(self) -> str:
        """Name of the backend that the region is placed on."""
        return self.region.backend

    @property
    def inputs(self) -> list[str]:
        """Names of the values that enter the region."""
        return [value.name for value in self.region.inputs]

    @property
    def outputs(self) -> list[str]:
        """Names of the values that leave the region."""
        return [value.name for value in self.region.outputs]

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes in the region, without those of bodies."""
        return [node.name or "" for node in self.region.nodes]

    def __repr__(self) -> str:
        return f"<region {self.index}: {len(self.region.nodes)} nodes of {self.backend} on {self.engine}>"

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute what leaves the region, by name.

        An engine that fails, or gives a shape that the model rules out, hands over to the next one, with a note.

        Raises:
            DovetailError: Every engine fails; the first failure is named.
        """
        first: EngineError | None = None
        while True:
            session = self._session
            try:
                results = session.run(inputs)
            except EngineError as error:
                first = first or error
                self._hand_over(session, error, first)
                continue
            mismatches = [] if self._shapes_are_settled else shape_mismatches(self.region.outputs, results)
            if not mismatches:
                return results
            if self._is_shape_confirmed(session, inputs, results, mismatches[0]):
                return results
            first = first or EngineError(f"{self._engine.label} {mismatches[0].text}", node=mismatches[0].node)
            self._hand_over(session, first, first)

    def executed(self) -> dict[str, Executed]:
        """How every node of the region was executed, by node name."""
        return self._session.executed()

    def _load_next(self) -> tuple[GuardedEngine, GuardedSession]:
        """The next engine that takes the region, with a note that says why those before it did not."""
        while self._waiting:
            engine = self._waiting.pop(0)
            try:
                session = engine.load(self._model, self._options)
            except EngineError as error:
                self.refusals.append(Refusal(self.region, engine.name, error))
                continue
            for refusal in self.refusals:
                self._note(f"{self.described} runs on {engine.name}: {refusal.error.message}")
            return engine, session
        reasons = [refusal.error.message for refusal in self.refusals] or ["none of its engines is available here"]
        raise DovetailError(f"no engine runs {self.described}: " + "; ".join(reasons))

    def _hand_over(self, failed: GuardedSession, error: EngineError, first: EngineError) -> None:
        """Go on with the next engine, unless another thread did so already."""
        with self._lock:
            if self._session is not failed:
                return
            self.refusals.append(Refusal(self.region, self._engine.name, error))
            try:
                self._engine, self._session = self._load_next()
            except DovetailError:
                raise first from error

    def _is_shape_confirmed(
        self, session: GuardedSession, inputs: Mapping, results: Mapping, mismatch: ShapeMismatch
    ) -> bool:
        """Whether the shape is right although the model declares another: a second engine computes the same one.

        Models declare false shapes, and engines compute wrong ones. Where no second engine is left, the engine is
        believed, with a note.
        """
        with self._lock:
            if self._session is not session or self._shapes_are_settled:
                return self._shapes_are_settled
            other = self._second_opinion(inputs)
            if other is None or all(
                getattr(other[value.name], "shape", None) == getattr(results[value.name], "shape", None)
                for value in self.region.outputs
            ):
                self._shapes_are_settled = True
                self._note(f"{self._engine.name} {mismatch.text}")
                return True
        return False

    def _second_opinion(self, inputs: Mapping) -> dict | None:
        """What the next engine that can run the region computes; None if there is none."""
        for engine in self._waiting:
            try:
                return engine.load(self._model, self._options).run(inputs)
            except EngineError:
                continue
        return None

    @property
    def described(self) -> str:
        """The region in words: `region 1 (cpu-bf16, 3 nodes from 'conv_1')`."""
        return described(self.region)


def described(region: Region) -> str:
    """A region in words: `region 1 (cpu-bf16, 3 nodes from 'conv_1')`."""
    first, count = region.nodes[0], len(region.nodes)
    name = first.name or (first.outputs[0].name if first.outputs else first.op_type)
    return f"region {region.index} ({region.backend}, {count} node{'s' * (count != 1)} from '{name}')"
