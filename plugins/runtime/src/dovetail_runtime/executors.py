"""Executors of plugins: created by name, and guarded like all foreign code."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.plugin import Executor
from dovetail.plugin.loading import calling, made

if TYPE_CHECKING:
    import numpy as np
    from dovetail.plugin import CompiledModel, Executed, Registry

    from dovetail_runtime.region_runner import RegionRefusal, RegionRunner
    from dovetail_runtime.timeline import Timeline


class GuardedExecutor:
    """A guarded executor of a plugin; any exception becomes an error that names it and its distribution.

    Args:
        title: The executor with its distribution, for messages.
        executor: The executor.
        outputs: Names of the model's outputs.
        options: Options of the engines.
    """

    def __init__(self, title: str, executor: Executor, outputs: list[str], options: Mapping[str, object]):
        self._who, self._executor, self._outputs = title, executor, outputs
        self.options = dict(options)
        self.timeline: Timeline | None = None

    @property
    def runners(self) -> list[RegionRunner]:
        """Runners in execution order; empty if the executor has none."""
        return list(self._executor.runners)

    @property
    def refusals(self) -> list[RegionRefusal]:
        """Refusals of regions by engines."""
        return list(self._executor.refusals)

    @property
    def notes(self) -> list[str]:
        """Messages for the user."""
        return [str(text) for text in self._executor.notes]

    def run(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Compute the model's outputs by name.

        Raises:
            DovetailError: The inputs do not match, the executor fails, or an output is missing.
        """
        with calling(self._who), nullcontext() if self.timeline is None else self.timeline.run(inputs):
            given = dict(self._executor.run(inputs))
        if lacking := [name for name in self._outputs if name not in given]:
            raise DovetailError(f"{self._who} gives no output '{lacking[0]}'", "`run` returns every output by its name")
        return {name: given[name] for name in self._outputs}

    def timed(self, inputs: Mapping[str, object], runs: int) -> list[float]:
        """Return the seconds of runs; see `dovetail.plugin.Executor`.

        Raises:
            DovetailError: The executor fails, or gives no times.
        """
        with calling(self._who):
            return list(map(float, self._executor.timed(inputs, runs)))

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed, by node name."""
        with calling(self._who):
            return dict(self._executor.executed())


def load_executor(name: str, compiled: CompiledModel, registry: Registry) -> GuardedExecutor:
    """Create the executor that a plugin registered as `name`.

    Raises:
        DovetailError: There is none, it fails to load, or it cannot be created for this model.
    """
    title = registry.executor.title(name)
    executor = made(registry.executor[name], title, Executor, compiled)
    return GuardedExecutor(title, executor, list(map(name_of, compiled.model.graph.outputs)), compiled.options)
