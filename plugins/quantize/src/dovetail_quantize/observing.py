"""Run a model on data, part by part, and show its values to watchers batch by batch."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from dovetail.errors import DovetailError
from dovetail.planning import ObserverChoice, Parameters, given_regions
from dovetail.plugin import Observer
from dovetail.plugin.loading import derived, described, foreign_output, overrides
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import inputs_of_samples, samples_at_once
from dovetail_runtime.engines import engines_of
from dovetail_runtime.executor import RegionExecutor
from dovetail_schemas.type_specs import resolve_observer

from dovetail_quantize.extrema import ExtremaNames, ExtremaNodes
from dovetail_quantize.integers import number_of_scales
from dovetail_quantize.observers.clipping import CountingObserver
from dovetail_quantize.observers.least_squares import LeastSquares
from dovetail_quantize.observers.merging import MergingObserver, State

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail.plugin.loading import Table
    from dovetail_precision.sharing_groups import QuantizedForm


CUT_DATA = "cut-data"
"""Rule of the remark that rows are run in parts, or why they are not."""

_PART = 32  # nodes
_WHOLE = 1 << 26  # bytes of values that leave the engine; the values of one part are in memory together
_OPEN = 1 << 22  # bytes assumed for a value of unknown size


class Watcher(Protocol):
    """A consumer of the numbers of a value."""

    @property
    def format(self) -> Format:
        """The format to find parameters for."""

    @property
    def extrema(self) -> Callable[[np.ndarray, np.ndarray], None] | None:
        """Callback for the per-slice extrema of a batch; None if the watcher needs all numbers."""

    def update(self, array: np.ndarray) -> None:
        """Process the numbers of one batch."""


class Amount(NamedTuple):
    """Amount of data seen.

    Attributes:
        batches: Number of runs of the model.
        samples: Number of samples in all batches.
    """

    batches: int
    samples: int


class _Shown(NamedTuple):
    watcher: Watcher
    value: str
    extrema: ExtremaNames | None


def observe(model: Model, wanted: Mapping[str, Sequence[Watcher]], ctx: Context) -> Amount:
    """Run `model` on the data of the request once, on the host.

    Memory holds one batch: the fully watched values of two parts, and the values that later parts read. Where extrema
    suffice, the engine computes them.

    Args:
        model: A float model; it is not changed.
        wanted: Watchers by the name of a value in the main graph.
        ctx: The context of the run.

    Returns:
        The amount of data.

    Raises:
        DovetailError: The data does not fit, or no engine of the host runs the model.
    """
    work = model.clone()
    parts, shown = _instrumented(work, wanted)
    engines = engines_of([ctx.host], ctx.registry)
    threads = _threads(one for each in wanted.values() for one in each)
    options = {"optimize": "none", "share_weights": True, "threads": threads}
    executor = RegionExecutor(work, engines, options, regions=given_regions(work.graph, parts))
    by_runner = [[one for name in runner.outputs for one in shown.get(name, ())] for runner in executor.runners]
    number = samples = 0
    at_once, counting = samples_at_once(model), inputs_of_samples(model)
    says = partial(ctx.remark, "passed", "", CUT_DATA)
    with ThreadPoolExecutor(1, "dovetail-calibrate") as thread:
        pending: Future | None = None
        for number, (feeds, _) in enumerate(batches(model, ctx.request.data, say=says), start=1):
            samples += max(len(feeds[name]) for name in counting if name in feeds) if at_once is None else at_once
            if pending is not None:  # a watcher may see both an input and computed values
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
                # Watchers see the results of one part while the next one runs, when the executor has already freed
                # them.
                pending = thread.submit(_show, number, [(one, _seen(one, values)) for one in by_runner[done - 1]])
        if pending is not None:
            pending.result()
    return Amount(number, samples)


def _threads(watchers: Iterable[Watcher]) -> int:
    """Return the engine's thread count, 0 for all: watchers that need all numbers keep one processor busy meanwhile."""
    if all(one.extrema is not None for one in watchers):
        return 0
    return max((os.cpu_count() or 1) - 1, 1)


def _instrumented(work: Model, wanted: Mapping[str, Sequence[Watcher]]) -> tuple[list[list[ir.Node]], dict]:
    """Return the watched values from the model; return its parts, and the watchers by output name."""
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
                # `finite` is NaN if a number is infinite or NaN, and turns both extrema into NaN.
                one.watcher.extrema(low + finite, high + finite)


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Add the number of the batch to errors, counted from 0 as data readers do."""
    try:
        yield
    except DovetailError as error:
        raise DovetailError(f"batch {number - 1} of the data: {error.message}", error.hint) from error


_DEFAULT = ObserverChoice("minmax")


def chosen_observer(form: QuantizedForm) -> ObserverChoice:
    """Return the observer that the rule of a value names, or the default one."""
    return form.rule.observer if form.rule.observer.name else _DEFAULT


class NamedObserver:
    """An observer of one value; its errors name the observer, its distribution and the value.

    Args:
        form: The value, and the observer that its rule names.
        table: The registered observers.
        choice: Overrides the observer of the rule.
        node: Overrides the node that errors name.

    Attributes:
        node: The first node that computes or reads the value.
        format: The format to find parameters for.
        extrema: Callback for the extrema of a batch; None if the observer needs all numbers.
        choice: Name and options of the observer.
        observer: The observer itself.
        follows_maxima: Whether it sees only the maxima of a value if only these are read.
        is_search: Whether it is `least-squares`, a function of the format and of what it sees.

    Raises:
        DovetailError: The observer or an option is unknown, or it cannot be created for this value.
    """

    def __init__(self, form: QuantizedForm, table: Table, choice: ObserverChoice | None = None, node: str = ""):
        self.node = node or next((use.node.name or "" for use in form.uses), "")
        self.format, self.choice = form.format, choice or chosen_observer(form)
        self._table = table
        self._seen = False
        self._form, self._who = form, table.title(self.choice.name) if self.choice.name in table else ""
        made = resolve_observer(self.choice, table)
        self.observer = self._called("cannot be made for", lambda: made(form.format, **dict(self.choice.options)))
        derived(self.observer, self._who, Observer)
        self.extrema = self._extrema if overrides(self.observer, Observer, "extrema") else None
        self.follows_maxima = self.observer.follows_maxima
        self.is_search = type(self.observer) is LeastSquares

    def update(self, array: Any) -> None:
        """Pass the numbers of one batch to the observer."""
        self._seen |= np.size(array) > 0
        self._called("fails on", lambda: self.observer.update(array))

    def update_with_relu(self, array: Any) -> None:
        """Pass the numbers of one batch to the observer, and those of its Relu."""
        observer = self.observer
        self._seen |= np.size(array) > 0
        if isinstance(observer, CountingObserver):
            self._called("fails on", lambda: observer.update_with_relu(array))
        else:
            self.update(array)
            self.update(np.maximum(array, 0))

    def state(self) -> State:
        """Return what the observer saw; see `MergingObserver`."""
        return self.observer.state() if isinstance(self.observer, MergingObserver) else {}

    def merge(self, state: State) -> None:
        """Add what an observer of another process saw.

        Raises:
            DovetailError: The observer fails on it.
        """
        observer = self.observer
        assert isinstance(observer, MergingObserver), "others are not divided"
        self._seen |= bool(state)
        self._called("fails on", lambda: observer.merge(state))

    def parameters(self) -> Parameters:
        """Return the observer's parameters, after checking them against the format.

        Values that never have an element get a scale of one, which nothing is computed with.
        """
        shape = self._form.value.shape
        if not self._seen and shape is not None and 0 in shape:
            count = self._called("finds no scale for", lambda: number_of_scales(self._form.format, shape))
            return Parameters((1.0,) * count, (0,) * count)
        return self._checked(shape)

    def of_part(self, part: np.ndarray, energy: np.ndarray | None = None) -> Parameters:
        """Return the parameters of a part of a weight, from a separate observer.

        With `energy`, in the shape of the part, squared errors are weighted by it, if the observer minimizes these.

        Scales of blocks may be negative: DequantizeLinear takes them, and the largest number of a block can then have
        the integer that has no counterpart.
        """
        alone = NamedObserver(self._form, self._table, self.choice)
        observer = alone.observer
        if energy is not None and isinstance(observer, LeastSquares):
            alone._called("fails on", lambda: observer.update_weighted(part, energy))
        else:
            alone.update(part)
        return alone._checked(part.shape)

    def _checked(self, shape: ir.Shape | Sequence[int] | None) -> Parameters:
        found = self._called("finds no scale for", self.observer.parameters)
        form = self._form
        sizes = {len(part) for part in found} if isinstance(found, Parameters) else set()
        wanted = self._called("finds no scale for", lambda: number_of_scales(form.format, shape))
        signed = form.format.group is not None
        if sizes != {wanted} or not all(scale > 0 or signed and scale < 0 for scale in found.scale):
            raise DovetailError(
                f"{self._who} gives {found!r} for '{form.value.name}' in {form.format}",
                "`parameters` returns one positive scale and one zero point, or one per index along the format's axis",
            )
        return found

    def _extrema(self, low: Any, high: Any) -> None:
        self._seen = True
        self._called("fails on", lambda: self.observer.extrema(low, high))

    def _called(self, what: str, call: Any) -> Any:
        try:
            with foreign_output(self._who):
                return call()
        except (DovetailError, KeyboardInterrupt):
            raise
        except BaseException as error:
            text = str(error) if isinstance(error, ValueError) else described(error)
            node, value = self.node, self._form.value
            floats = f"compute '{node}' in floats (--high {shlex.quote(str(node))})"
            if value.is_graph_input() and value.is_initializer():
                raise DovetailError(
                    f"'{value.name}', which '{node}' needs in {self._form.format}, is an input with a default, so that "
                    "callers may replace it: --freeze-inputs makes it a constant",
                    f"or {floats}",
                ) from error
            way = f"look at the data, {floats}, or choose another observer"
            where = f"{self.choice.source}: " if self.choice.options and self.choice.source else ""
            raise DovetailError(
                f"{where}{self._who} {what} '{value.name}' in {self._form.format}: {text}", way
            ) from error
