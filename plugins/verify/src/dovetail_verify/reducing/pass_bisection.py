"""The pass that broke a result, found by bisection: the model after a pass is compared with the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.api import AnyModel
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import Context, Request
from dovetail.plugin import API_VERSION, hookimpl, load_plugins

from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.compare import verify
from dovetail_verify.output_comparison import POOR
from dovetail_verify.runners import reference_runner, runner

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import BackendChoice
    from dovetail.plugin import CompiledModel, PluginSet


_DECIDING = "place"
_FILES = ("emit", "load")  # stages after which nodes may be calls of compiled programs, which only the result runs


@dataclass
class PassMeasurement:
    """The model after one pass.

    Attributes:
        number: Number of passes that have run, from 1.
        name: The pass.
        said: Its SNR, or why it does not run.
        broken: Whether it misses the goal, or does not run.
    """

    number: int
    name: str
    said: str
    broken: bool


@dataclass
class BrokenPass:
    """The pass that broke a result.

    Attributes:
        passes: Names of all passes, in the order in which they ran.
        first: The first pass after which the model is broken; None if none is.
        measured: The models that were measured, by number.
        result: The outcome of the comparison for the result.
    """

    passes: list[str]
    first: PassMeasurement | None = None
    measured: list[PassMeasurement] = field(default_factory=list)
    result: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "passes": self.passes,
            "first": None if self.first is None else vars(self.first),
            "measured": [vars(one) for one in sorted(self.measured, key=lambda one: one.number)],
            "result": self.result,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each pass that was measured."""
        ordered = sorted(self.measured, key=lambda one: one.number)
        return [{"passes": one.number, "last": one.name, "outputs": one.said} for one in ordered]

    def line(self) -> str:
        """Return a one-line summary."""
        if self.first is None:
            return f"no pass of {len(self.passes)} breaks the result: {self.result}"
        return (
            f"pass {self.first.number} of {len(self.passes)}, {self.first.name}, breaks the result: {self.first.said}"
        )


class _Observer:
    """A plugin that keeps a copy of the model after one pass."""

    dovetail_api = API_VERSION

    def __init__(self) -> None:
        self.wanted = 0
        self.ran: list[tuple[str, str]] = []
        self.copy: Model | None = None

    @hookimpl
    def after_pass(self, pass_: Any, model: Model) -> None:
        """Note the pass, and copy the model if it is the wanted one."""
        self.ran.append((pass_.name, pass_.stage or ""))
        if len(self.ran) == self.wanted:
            self.copy = model.clone()


class PassBisection:
    """Measures the models between passes of one request.

    Args:
        model: The model.
        backends: The backends, as for `dovetail.compile`.
        data: Inputs to compare on.
        goals: The goals that every model must meet.
        plugins: The plugins.
        request: Further keyword arguments of `dovetail.compile`.
        progress: Called with (what, done, total).
    """

    def __init__(
        self,
        model: Model,
        backends: Any,
        data: object,
        goals: Goals,
        plugins: PluginSet,
        request: dict[str, Any],
        progress: Callable[[str, int, int], None] | None = None,
    ):
        self._model, self._backends, self._data, self._goals = model, backends, data, goals
        self._plugins, self._request, self._progress = plugins, request, progress
        self._observer = _Observer()
        plugins.attach(self._observer, "pass-bisection")
        self._exact = reference_runner(model, Context(Request(), plugins=plugins))

    def after(self, number: int) -> Model:
        """Return the model after so many passes.

        Raises:
            UsageError: There are fewer passes.
            DovetailError: The request cannot be compiled.
        """
        self._compiled(number)
        if self._observer.copy is None:
            raise UsageError(f"--stop-after {number}: {len(self._observer.ran)} passes run", "give a number from 1")
        return self._observer.copy

    def find(self) -> BrokenPass:
        """Find the first pass after which the model is broken.

        Raises:
            DovetailError: The request cannot be compiled, or the source does not run.
        """
        compiled = self._compiled(0)
        ran = list(self._observer.ran)
        found = BrokenPass([name for name, _ in ran])
        broken, found.result = self._judge(compiled.model, runner(compiled))
        if not broken:
            return found
        places = _of_last_round(ran)
        low, high = -1, len(places)
        while high - low > 1:
            middle = (low + high) // 2
            one = self._measure(places[middle], ran)
            found.measured.append(one)
            low, high = (low, middle) if one.broken else (middle, high)
        if high < len(places):
            found.first = next(one for one in found.measured if one.number == places[high])
        else:
            last = "what is done with regions: emitters and engines"
            found.first = PassMeasurement(len(ran), last, found.result, True)
        return found

    def _measure(self, number: int, ran: Sequence[tuple[str, str]]) -> PassMeasurement:
        if self._progress:
            self._progress(f"after pass {number}", number, len(ran))
        model = self.after(number)
        broken, said = self._judge(model, reference_runner(model, Context(Request(), plugins=self._plugins)))
        return PassMeasurement(number, ran[number - 1][0], said, broken)

    def _compiled(self, number: int) -> CompiledModel:
        observer = self._observer
        observer.wanted, observer.ran, observer.copy = number, [], None
        unverified: dict[str, Any] = {"verify": False} if "verify" in self._plugins.registry.option else {}
        return dovetail.compile(
            self._model, self._backends, data=self._data, plugins=self._plugins, **unverified, **self._request
        )

    def _judge(self, made: Model, run: Any) -> tuple[bool, str]:
        """Compare a model with the source; one that does not run is broken."""
        from dovetail_runtime.data.batches import fitted

        try:
            found = verify(self._model, self._exact, lambda feeds: run(fitted(made, feeds)), self._data, made=made)
        except DovetailError as error:
            return True, error.message
        worst = found.worst_snr_db
        missed = self._goals.missed(found) if self._goals else []
        poor = not self._goals and worst is not None and worst < POOR
        return bool(missed) or found.broken or poor, found.short() or "no output of floats"


def _of_last_round(ran: Sequence[tuple[str, str]]) -> list[int]:
    """Return the numbers of the passes that made the result and whose models the host runs.

    What backends refuse is decided again; only the last decision counts.
    """
    numbers = list(range(1, len(ran) + 1))
    deciding = [number for number in numbers if ran[number - 1][1] == _DECIDING]
    if deciding:
        first_name = ran[deciding[0] - 1][0]
        last = max(number for number in deciding if ran[number - 1][0] == first_name)
        numbers = [number for number in numbers if number < deciding[0] or number >= last]
    return [number for number in numbers if ran[number - 1][1] not in _FILES]


def bisect_passes(
    model: AnyModel,
    backends: str | BackendChoice | Sequence[str | BackendChoice] = (),
    *,
    data: object,
    min_snr: float | None = None,
    min_cosine: float | None = None,
    min_top1: float | None = None,
    max_abs: float | None = None,
    max_kl: float | None = None,
    max_perplexity_rise: float | str | None = None,
    stop_after: int | None = None,
    plugins: PluginSet | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **request: Any,
) -> BrokenPass | Model:
    """Find the pass of a compilation after which the model no longer computes the same.

    Args:
        model: The model.
        backends: See `dovetail.compile`.
        data: The inputs to compare on.
        min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise:
            Goals; without any, an SNR below 20 dB is broken.
        stop_after: Return the model after so many passes instead.
        plugins: The plugins, which get an observer of passes.
        progress: Called with (what, done, total).
        request: Further keyword arguments of `dovetail.compile`.

    Raises:
        UsageError: There is no data, or `stop_after` is not a number of passes that run.
        DovetailError: The request cannot be compiled, or the source does not run.
    """
    if data is None:
        raise UsageError("there is no data to compare on", "give --data: inputs like those that the model will see")
    plugins = plugins or load_plugins()
    goals = Goals.of(min_snr, min_cosine, min_top1, max_abs, max_kl, max_perplexity_rise)
    source = dovetail.open(model, plugins)
    search = PassBisection(source, backends, data, goals, plugins, dict(request), progress)
    return search.find() if stop_after is None else search.after(stop_after)
