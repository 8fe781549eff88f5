"""Run a model on data and show values to whoever wants to see them, batch by batch and part by part."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from dovetail.compiler import derived, described, foreign_output, overrides
from dovetail.errors import DovetailError
from dovetail.planning import ObserverChoice, Parameters
from dovetail.plugin import Observer
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import inputs_of_samples, samples_at_once
from dovetail_runtime.engines import engines_of
from dovetail_runtime.executor import Executor
from dovetail_schemas.type_specs import resolve_observer
from dovetail_transforms.regions.regions import given_regions

from dovetail_quantize.extrema import ExtremaNames, ExtremaNodes
from dovetail_quantize.integers import number_of_scales

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.compiler import Table
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail_precision.sharing_groups import Held


_PART = 32  # nodes
_WHOLE = 1 << 26  # bytes of values that leave the engine; those of one part are in memory at the same time
_OPEN = 1 << 22  # bytes that a value of unknown size counts for


class Watcher(Protocol):
    """Who wants to see a value."""

    @property
    def format(self) -> Format:
        """The format that parameters are wanted for."""

    @property
    def extrema(self) -> Callable[[np.ndarray, np.ndarray], None] | None:
        """Takes the smallest and the largest number of every slice of a batch; None: it needs all numbers."""

    def update(self, array: np.ndarray) -> None:
        """See the numbers of one batch."""


class Amount(NamedTuple):
    """How much data was seen.

    Attributes:
        batches: Runs of the model.
        samples: Samples in them.
    """

    batches: int
    samples: int


class _Shown(NamedTuple):
    watcher: Watcher
    value: str
    extrema: ExtremaNames | None


def observe(model: Model, wanted: Mapping[str, Sequence[Watcher]], ctx: Context) -> Amount:
    """Run `model` on the data of the request once, on the host.

    Memory holds one batch, and of it the values of two parts that somebody wants to see whole, and those that later
    parts read. Where extrema are enough, they are computed beside the value.

    Args:
        model: A float model; it is not changed.
        wanted: By name of a value of the main graph, who wants to see it.
        ctx: The context of the run.

    Returns:
        How much data there was.

    Raises:
        DovetailError: The data does not fit, or no engine of the host runs the model.
    """
    work = model.clone()
    parts, shown = _instrumented(work, wanted)
    engines = engines_of([ctx.host], ctx.registry)
    threads = _threads(one for each in wanted.values() for one in each)
    options = {"optimize": "none", "share_weights": True, "threads": threads}
    executor = Executor(work, engines, options, regions=given_regions(work.graph, parts))
    by_runner = [[one for name in runner.outputs for one in shown.get(name, ())] for runner in executor.runners]
    number = samples = 0
    at_once, counting = samples_at_once(model), inputs_of_samples(model)
    says = partial(ctx.remark, "passed", "", "cut-data")
    with ThreadPoolExecutor(1, "dovetail-calibrate") as thread:
        pending: Future | None = None
        for number, (feeds, _) in enumerate(batches(model, ctx.request.data, say=says), start=1):
            samples += max(len(feeds[name]) for name in counting) if at_once is None else at_once
            if pending is not None:  # one observer may see an input and computed values
                pending.result()
            with _naming(number):
                for name, array in feeds.items():
                    for watcher in wanted.get(name, ()):
                        watcher.update(array)
            for done, (_, values) in enumerate(executor.steps(feeds), start=1):
                if ctx.progress:
                    ctx.progress(f"calibrate, batch {number}", done, len(executor.runners))
                if pending is not None:
                    pending.result()
                # What one part gave is looked at while the next one runs: the executor forgets values by then.
                pending = thread.submit(_show, number, [(one, _seen(one, values)) for one in by_runner[done - 1]])
        if pending is not None:
            pending.result()
    return Amount(number, samples)


def _threads(watchers: Iterable[Watcher]) -> int:
    """The threads of the engine, 0 for all: watchers that see all numbers keep a processor busy at the same time."""
    if all(one.extrema is not None for one in watchers):
        return 0
    return max((os.cpu_count() or 1) - 1, 1)


def _instrumented(work: Model, wanted: Mapping[str, Sequence[Watcher]]) -> tuple[list[list[ir.Node]], dict]:
    """Let a model return what is wanted; return its parts, and by name of an output who sees something there."""
    nodes, extrema = list(work.graph), ExtremaNodes(work)
    work.graph.outputs.clear()
    parts: list[list[ir.Node]] = []
    part: list[ir.Node] = []
    whole = 0
    shown: dict[str, list[_Shown]] = {}
    for node in nodes:
        if len(part) == _PART or whole >= _WHOLE:
            parts.append([*part, *extrema.added])
            extrema.added.clear()
            part, whole = [], 0
        part.append(node)
        for value in node.outputs:
            alone: dict[Format, ExtremaNames | None] = {}
            name = value.name or ""
            for watcher in wanted.get(name, ()):
                if watcher.extrema is not None and watcher.format not in alone:
                    alone[watcher.format] = extrema.add(value, watcher.format)
                names = alone[watcher.format] if watcher.extrema is not None else None
                at = name if names is None else names.finite
                shown.setdefault(at, []).append(_Shown(watcher, name, names))
            if name in shown:
                work.graph.outputs.append(value)
                whole += _size(value)
    if part:
        parts.append([*part, *extrema.added])
    work.touch()
    return parts, shown


def _size(value: ir.Value) -> int:
    if value.shape is None or value.dtype is None or not value.shape.is_static():
        return _OPEN
    return int(np.prod(value.shape.numpy())) * value.dtype.bitwidth // 8


def _seen(one: _Shown, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return [values[name] for name in (one.extrema or (one.value,))]


def _show(number: int, seen: list[tuple[_Shown, list[np.ndarray]]]) -> None:
    with _naming(number):
        for one, arrays in seen:
            if one.extrema is None or one.watcher.extrema is None:
                one.watcher.update(arrays[0])
            else:
                low, high, finite = (array.reshape(-1) for array in arrays)
                # An infinite number or a NaN makes `finite` NaN, and both extrema with it.
                one.watcher.extrema(low + finite, high + finite)


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Let errors name the batch, counted from 0 as readers of data do."""
    try:
        yield
    except DovetailError as error:
        raise DovetailError(f"batch {number - 1} of the data: {error.message}", error.hint) from error


_DEFAULT = ObserverChoice("minmax")


def chosen_observer(held: Held) -> ObserverChoice:
    """The observer that the rule of a value names, or the default one."""
    return held.rule.observer if held.rule.observer.name else _DEFAULT


class NamedObserver:
    """An observer of one value, whose failures name it, its distribution and the value.

    Args:
        held: The value, and the observer that its rule names.
        table: The registered observers.
        choice: Another observer than the rule's.

    Attributes:
        format: The format that parameters are wanted for.
        extrema: Takes the extrema of a batch, or None if the observer needs all numbers.
        choice: Name and options of the observer.
        observer: The observer itself.
        follows_maxima: Whether it wants to see the maxima of a value where nothing else of it is read.

    Raises:
        DovetailError: There is no such observer, it has no such option, or it cannot be made for this value.
    """

    def __init__(self, held: Held, table: Table, choice: ObserverChoice | None = None):
        self.format, self.choice = held.format, choice or chosen_observer(held)
        self._held, self._who = held, table.title(self.choice.name) if self.choice.name in table else ""
        made = resolve_observer(self.choice, table)
        self.observer = self._called("cannot be made for", lambda: made(held.format, **dict(self.choice.options)))
        derived(self.observer, self._who, Observer)
        self.extrema = self._extrema if overrides(self.observer, Observer, "extrema") else None
        self.follows_maxima = self.observer.follows_maxima

    def update(self, array: Any) -> None:
        """Show it some numbers."""
        self._called("fails on", lambda: self.observer.update(array))

    def parameters(self) -> Parameters:
        """What it makes of everything that it saw."""
        found = self._called("finds no scale for", self.observer.parameters)
        held = self._held
        sizes = {len(part) for part in found} if isinstance(found, Parameters) else set()
        wanted = self._called("finds no scale for", lambda: number_of_scales(held.format, held.value.shape))
        if sizes != {wanted} or not all(scale > 0 for scale in found.scale):
            raise DovetailError(
                f"{self._who} gives {found!r} for '{held.value.name}' in {held.format}",
                "`parameters` returns one positive scale and one zero point, or one per index along the format's axis",
            )
        return found

    def _extrema(self, low: Any, high: Any) -> None:
        self._called("fails on", lambda: self.observer.extrema(low, high))

    def _called(self, what: str, call: Any) -> Any:
        try:
            with foreign_output(self._who):
                return call()
        except (DovetailError, KeyboardInterrupt):
            raise
        except BaseException as error:
            text = str(error) if isinstance(error, ValueError) else described(error)
            node = self._held.uses[0].node.name
            where = f"{self.choice.source}: " if self.choice.options and self.choice.source else ""
            raise DovetailError(
                f"{where}{self._who} {what} '{self._held.value.name}' in {self._held.format}: {text}",
                f"look at the data, compute '{node}' in floats (--high {shlex.quote(str(node))}), or choose another "
                "observer",
            ) from error
