"""Runner of a compiled model: its engines, the executor `regions`, and executors of plugins."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import dovetail.plugin
from dovetail.errors import DovetailError
from dovetail.ir import all_nodes
from dovetail.planning import HOST
from dovetail.plugin import load_plugins
from dovetail.text import pluralize

from dovetail_runtime.engines import TARGET_ONLY, Engines, engines_of
from dovetail_runtime.loading import LoadTrial, tried_engines

if TYPE_CHECKING:
    import numpy as np
    from dovetail.passes import Context
    from dovetail.plugin import CompiledModel, Executed

    from dovetail_runtime.executor import RegionExecutor
    from dovetail_runtime.executors import GuardedExecutor
    from dovetail_runtime.region_runner import RegionRunner


class ModelRunner(dovetail.plugin.Runner):
    """Runs a compiled model; see `dovetail.plugin.Runner`. Engines are loaded on first use.

    Args:
        compiled: The model.
    """

    def __init__(self, compiled: CompiledModel):
        self._compiled = compiled
        self._registry = compiled.registry or load_plugins().registry
        # Only this object may hold the trial's executor, so that `unload` frees its memory.
        trial = compiled.trial if isinstance(compiled.trial, LoadTrial) else LoadTrial({})
        compiled.trial = None
        self._tried_engines, self._untried = trial.engines, trial.untried
        self._executors: dict[str, RegionExecutor | GuardedExecutor] = {"": trial.executor} if trial.executor else {}
        self._last_used = ""
        self._cut_notes: list[str] = []
        self._lock = threading.Lock()

    @staticmethod
    def tried(ctx: Context) -> Mapping[str, str]:
        """Return the engines that may refuse nodes of a compilation, by backend."""
        return tried_engines(ctx)

    @cached_property
    def engines(self) -> Engines:  # type: ignore[override]  # never set
        """The engines of each backend of the model.

        Raises:
            DovetailError: A backend has no engines.
        """
        return self._tried_engines or engines_of(self._compiled.backends, self._registry, self._is_for_elsewhere)

    def _is_for_elsewhere(self) -> bool:
        """Whether the result was compiled for another machine; only asked where an engine is missing."""
        return TARGET_ONLY in self._compiled.plan.summary.get("options", {})

    def executor(  # type: ignore[override]  # a guard has all that an executor has
        self, name: str = ""
    ) -> RegionExecutor | GuardedExecutor:
        """Return the executor of the model, created on first use and again after its options change.

        Args:
            name: The name of a plugin's executor; by default the one that runs region by region.

        Raises:
            DovetailError: No plugin registers it, it cannot be created, or no engine accepts a region.
        """
        compiled = self._compiled
        with self._lock:
            known = self._executors.get(name)
            if known is None or known.options != compiled.options:
                if name:
                    from dovetail_runtime.executors import load_executor

                    known = load_executor(name, compiled, self._registry)
                else:
                    from dovetail_runtime.executor import RegionExecutor

                    known = RegionExecutor(compiled.model, self.engines, compiled.options, artifacts=compiled.artifacts)
                self._executors[name] = known
            self._last_used = name
            return known

    @property
    def _used(self) -> RegionExecutor | GuardedExecutor | None:
        """The executor that ran or was loaded last."""
        return self._executors.get(self._last_used)

    @property
    def loaded(self) -> bool:  # type: ignore[override]  # never set
        """Whether engines have loaded the model."""
        return self._used is not None

    def unload(self) -> None:
        """Release the engines' sessions and their memory."""
        with self._lock:
            self._executors.clear()

    @property
    def runners(self) -> Sequence[RegionRunner]:  # type: ignore[override]  # never set
        """Runners of the regions in execution order."""
        return self.executor().runners

    def run(self, inputs: Mapping[str, object], executor: str = "") -> dict[str, np.ndarray]:
        """Compute all outputs by name; thread-safe.

        Raises:
            DovetailError: An input is missing, unknown or does not match, or no engine runs a region.
        """
        return self.executor(executor).run(inputs)

    def run_on(self, data: object, executor: str = "") -> dict[str, np.ndarray]:
        """Compute all outputs for all arrays of `data`, concatenated along the first axis.

        Arrays run whole. Longer ones are split, with a note, only if the model fixes its first extent.

        Raises:
            DovetailError: The data does not match, no engine runs a region, or the results cannot be concatenated.
        """
        from dovetail_runtime.data.batches import batches, fitted

        model = self._compiled.model
        self._cut_notes = []
        given = batches(model, data, whole=True, say=self._cut_notes.append)
        return joined_batches(self.run(fitted(model, feeds), executor) for feeds, _ in given)

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed by the executor that ran or was loaded last."""
        return self.executor(self._last_used).executed()

    @property
    def warnings(self) -> list[str]:  # type: ignore[override]  # never set
        """A warning for each engine that computes node by node instead of the preferred one of a backend."""
        found: dict[str, list[RegionRunner]] = {}
        for runner in self._used.runners if self._used is not None else ():
            if runner.interprets and runner.engine != self.engines[runner.backend][0].name:
                found.setdefault(runner.engine, []).append(runner)
        total = pluralize(sum(1 for _ in self._compiled.model.nodes()), "node")
        return [
            f"{sum(1 for one in runners for _ in all_nodes(one.region.nodes))} of {total}, from '{runners[0].nodes[0]}'"
            f", run on {engine}, which is slow: every other engine refuses them; the notes say why"
            for engine, runners in found.items()
        ]

    def stand_ins(self) -> str:
        """Return how many regions run on an engine other than their backend's preferred one, for the coverage line."""
        found = Counter(
            (runner.backend, runner.engine)
            for runner in (self._used.runners if self._used is not None else ())
            if runner.backend != HOST and runner.engine != self.engines[runner.backend][0].name
        )
        texts = [f"{pluralize(n, 'region')} of {backend} on {engine}" for (backend, engine), n in sorted(found.items())]
        return "".join(f"; {text}" for text in texts)

    @property
    def notes(self) -> list[str]:  # type: ignore[override]  # never set
        """Messages about engines that are missing, have a caveat, refused a region, or were not tried."""
        if self._used is not None:
            return [*self._used.notes, *self._cut_notes]
        notes = []
        if self._untried:
            text = f"the engines were not tried with this model: {self._untried}"
            notes.append(f"{text}; --try-engines does it all the same")
        try:
            engines = self.engines
        except DovetailError as error:
            return [*notes, error.message]
        used = {row["backend"] for row in self._compiled.placement_table()}
        for backend in sorted(used & engines.keys()):
            for engine in engines[backend]:
                ok, why = engine.available()
                if why or not ok:
                    notes.append(f"{engine.name}{'' if ok else ' is not available'}: {why}")
                if ok:
                    break
        return notes


def joined_batches(batches: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Join the outputs of all batches along the first axis.

    Raises:
        DovetailError: They differ in other extents.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for outputs in batches:
        for name, array in outputs.items():
            parts.setdefault(name, []).append(array)
    return {name: _joined(name, arrays) for name, arrays in parts.items()}


def _joined(name: str, parts: list[Any]) -> Any:
    """Join the results of several batches: concatenate arrays and lists, collect numbers in an array."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    if len({np.shape(part)[1:] for part in parts}) > 1:
        shapes = ", ".join(dict.fromkeys(str(list(np.shape(part))) for part in parts))
        raise DovetailError(f"output '{name}' has other shapes from run to run: {shapes}", "give less data at once")
    return np.concatenate([np.atleast_1d(part) for part in parts])
