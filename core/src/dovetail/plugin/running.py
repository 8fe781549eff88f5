"""Contracts for running results: executors, their runner, input data, and the comparison with the original."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dovetail.api_extensions import api_extension
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import numpy as np

    from dovetail.ir.model import Model
    from dovetail.plugin.compiled import CompiledModel
    from dovetail.plugin.context import Context
    from dovetail.plugin.engine import Engine, Executed
    from dovetail.plugin.loading.registry import Registry


class Executor(ABC):
    """Runs a compiled model; called with a `CompiledModel`, whose model, engines and options it uses.

    `dovetail_runtime.executor.RegionExecutor`, which runs region by region, can serve as base class.

    Attributes:
        notes: Notes for the user, one sentence each.
        refusals: Rejections of regions by engines.
        runners: The runner of each region, in execution order; empty if it does not run regions.
    """

    notes: Sequence[str] = ()
    refusals: Sequence[Any] = ()
    runners: Sequence[Any] = ()

    @abstractmethod
    def run(self, inputs: Mapping[str, object]) -> Mapping[str, np.ndarray]:
        """Run the model and return all outputs by name; thread-safe.

        Raises:
            DovetailError: An input is missing or does not fit, or an engine fails.
        """

    @abstractmethod
    def executed(self) -> Mapping[str, Executed]:
        """Return how every node was executed, by node name; empty if unknown."""

    def timed(self, inputs: Mapping[str, object], runs: int) -> list[float]:
        """Run the model once, and then `runs` times, and return the seconds of each of these runs.

        An executor whose runs are elsewhere overrides it, and returns the times that are measured there.

        Raises:
            DovetailError: A run fails, or nothing measures it.
        """
        self.run(inputs)
        found = []
        for _ in range(runs):
            begun = time.perf_counter()
            self.run(inputs)
            found.append(time.perf_counter() - begun)
        return found


class Runner(ABC):
    """The runtime interface of `CompiledModel`: the executor registered as `regions`, from dovetail-runtime.

    Created with every `CompiledModel` that is inspected, so it loads nothing before something runs. It also creates the
    other executors.

    Attributes:
        engines: The engines of each backend.
        loaded: Whether engines have loaded the model; if not, `executed` would load it.
        notes: Notes for the user about the engines.
        warnings: Warnings about engines that make a result far slower than expected.
        runners: The regions in execution order.
    """

    engines: Mapping[str, Sequence[Engine]]
    loaded: bool
    notes: Sequence[str]
    runners: Sequence[Any]
    warnings: Sequence[str] = ()

    @abstractmethod
    def __init__(self, compiled: CompiledModel) -> None:
        """Prepare to run `compiled`, without loading anything."""

    @staticmethod
    @abstractmethod
    def tried(ctx: Context) -> Mapping[str, str]:
        """Return the engines that may reject parts of a compilation, by backend; they are part of its cache key.

        Raises:
            DovetailError: A backend has no engine.
        """

    @abstractmethod
    def executor(self, name: str = "") -> Executor:
        """Return the executor of that name; by default the one that runs region by region."""

    @abstractmethod
    def run(self, inputs: Mapping[str, object], executor: str = "") -> dict[str, np.ndarray]:
        """Run the model with the executor of that name, and return all outputs by name."""

    @abstractmethod
    def run_on(self, data: object, executor: str = "") -> dict[str, np.ndarray]:
        """Run on all batches of input data and return the outputs, joined on the first axis."""

    @abstractmethod
    def executed(self) -> Mapping[str, Executed]:
        """Return how every node was executed, by node name; empty if unknown."""

    @abstractmethod
    def stand_ins(self) -> str:
        """Return the coverage line's note on fallback engines, which replace preferred ones, or empty."""

    @abstractmethod
    def unload(self) -> None:
        """Release the engines' sessions and their memory."""


class InputData(Protocol):
    """Input data of a request; created by `dovetail.input_data`.

    Attributes:
        given: The data in a form that can be read repeatedly, for passes.
    """

    given: object

    def batches(self, model: Model) -> Iterator[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
        """Yield the inputs of one run after the other, each with the labels in the data.

        Raises:
            DovetailError: The data does not fit the model.
        """

    def check(self, model: Model) -> None:
        """Check the first batch, to report data that does not fit before any work is done.

        Raises:
            DovetailError: It does not fit the model.
        """

    def extents(self, model: Model) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes that the data gives to inputs whose shape the model leaves open, for one run.

        Raises:
            DovetailError: Two samples differ in an open extent, or the data does not fit.
        """

    def digest(self) -> str:
        """Return a hash of all arrays; empty for data that can be read only once."""


class Verification(Protocol):
    """A comparison with the original, which an option stores in `CompiledModel.verification`.

    Attributes:
        notes: Notes on its figures.
        warnings: Alarming findings, one sentence each.
        advice: What to do about the warnings, or empty.
        missed: The requested goals that are not met.
        broken: Whether the result does not approximate the original; commands then exit with 1.
    """

    @property
    def notes(self) -> Sequence[str]:
        """Notes on its figures."""

    @property
    def warnings(self) -> Sequence[str]:
        """Alarming findings, one sentence each."""

    @property
    def advice(self) -> str:
        """What to do about the warnings, or empty."""

    @property
    def missed(self) -> Sequence[object]:
        """The requested goals that are not met; each is a sentence as text."""

    @property
    def broken(self) -> bool:
        """Whether the result does not approximate the original."""

    def lines(self) -> list[str]:
        """Return the report as lines of text."""

    def short(self) -> str:
        """Return its part of the coverage line, or empty."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""


_RUNNER = "regions"


def runner_class(registry: Registry) -> type[Runner] | None:
    """Return the class of the runner of compiled models, the executor `regions`; None if it is not installed."""
    runner: type[Runner] | None = registry.executor.get(_RUNNER)
    return runner


def cannot_run() -> DovetailError:
    """Return the error for a result that must run while `runner_class` returns None."""
    return DovetailError("no installed distribution runs models", "pip install dovetail-runtime")


def input_data(data: object) -> InputData:
    """Convert input data of any accepted form to one object.

    Raises:
        DovetailError: No distribution that reads data is installed.
    """
    given: InputData = api_extension("input_data")(data)
    return given
