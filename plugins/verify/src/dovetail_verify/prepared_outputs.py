"""The outputs of a prepared model compared with those of its source, and the pass and node that change them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import float_name, gc_paused, name_of
from dovetail.passes import Context, Manager, Pipeline, compose
from dovetail.text import pluralize
from dovetail_onnx.native_runtime import return_freed_memory
from dovetail_runtime.data.batches import batches, fitted
from dovetail_runtime.data.independent_rows import inputs_of_samples, is_static
from dovetail_runtime.feeds import arrays_of

from dovetail_verify.accuracy.watched import OPTIONS
from dovetail_verify.compare import random_run
from dovetail_verify.metrics import DifferenceSums, decibels_text
from dovetail_verify.reducing.recording import record, temporary_file, typed_copy
from dovetail_verify.runners import reference_runner, source_runner

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.plugin import CompileJob

    from dovetail_verify.reducing.recording import RecordedValues

Feeds = Mapping[str, "np.ndarray"]
Outputs = dict[str, "np.ndarray"]

_STAGES = ("normalize", "analyze")
_ROWS = 4  # of samples that the model takes in any number
_ROUNDING = {"float16": 40.0, "bfloat16": 25.0}
"""Lowest SNR, in dB, of a difference by rounding in models that hold numbers of these types."""
_ROUNDING_OF_FLOATS = 60.0
_MARGIN = 20.0  # dB; roundings at every node weigh more than those of the inputs alone
_HINT = (
    "report it, with the model; --no-check-prepare compiles it all the same, and --stop-after N of `dovetail bisect "
    "--passes` writes the model after N passes"
)


class _Fault(NamedTuple):
    """An output of the prepared model that differs from the source by more than rounding."""

    output: str
    text: str


class NotComparedError(DovetailError):
    """The models were not compared, because one of them does not run."""


class PreparedOutputs:
    """Compares the prepared model of a job with the source on one batch, both on the host.

    Args:
        job: The compilation.
        shapes: Shapes of random inputs that the model leaves open, by name.
        given: What both run on, for messages: `random inputs`.
    """

    def __init__(self, job: CompileJob, shapes: Mapping[str, Sequence[int]], given: str):
        self._job, self._shapes, self._given = job, shapes, given

    def compare(self, prepared: Model) -> None:
        """Run both models, and compare their outputs.

        Raises:
            NotComparedError: One of them does not run.
            DovetailError: The prepared model computes something else; the message names the pass and the node.
        """
        source, ctx = self._job.original, self._job.ctx
        try:
            with gc_paused():
                # Of a large source only one session is held at a time.
                feeds, wanted = self._batch(prepared, source_runner(source, ctx))
                return_freed_memory()
                ours = _flat(reference_runner(prepared, ctx, OPTIONS)(fitted(prepared, feeds)))
        except DovetailError as error:
            raise NotComparedError(error.message) from error
        faults = _faults(wanted, ours, _limit(source))
        if faults:
            variations = list(self._variations(source, source_runner(source, ctx), feeds))
            faults = [fault for fault in faults if not _explained(fault.output, wanted, ours, variations)]
        if faults:
            raise self._error(feeds, faults[0])

    def _batch(self, prepared: Model, original: Callable[[Feeds], Outputs]) -> tuple[Feeds, Outputs]:
        """Return inputs, and the outputs of the source for them."""
        source, data = self._job.original, self._job.request.data
        if data is None:
            _, feeds, outputs = random_run(source, original, 0, self._shapes)
            return feeds, _flat(outputs)
        first = next(batches(source, data, prepared, whole=True), None)
        if first is None:
            raise DovetailError("the data holds no batch", "give at least one sample")
        feeds = _few_rows(source, first[0])
        return feeds, _flat(original(feeds))

    def _variations(
        self, source: Model, original: Callable[[Feeds], Outputs], feeds: Feeds
    ) -> Iterator[tuple[Outputs, bool]]:
        """Yield rounded variants of the source's outputs, each with whether its inputs were exactly the same."""
        yield _flat(original(feeds)), True
        yield _flat(reference_runner(source, self._job.ctx, OPTIONS)(feeds)), False
        yield _flat(original({name: _rounded(array) for name, array in feeds.items()})), False

    def _error(self, feeds: Feeds, fault: _Fault) -> DovetailError:
        name, before, after = self._broken_pass(feeds, fault.output)
        node, why = self._broken_node(before, after, feeds)
        at = f" at node '{node}' ({why})" if node else ""
        error = DovetailError(
            f"preparing the model changes what it computes: {fault.text} on {self._given}; it is pass '{name}'{at}",
            _HINT,
        )
        error.node = node
        return error

    def _broken_pass(self, feeds: Feeds, output: str) -> tuple[str, Model, Model]:
        """Find the pass after which the output differs, by halving; returns its name, and the models around it."""
        job, source = self._job, self._job.original
        registry, plugins = job.ctx.registry, job.ctx.plugins
        pipeline = compose(registry, _STAGES, job.request, plugins, job.passes)
        ctx, work = Context(job.request, plugins=plugins, registry=registry), source.clone()
        names, models = [""], [source]
        for step in pipeline.steps:
            Manager(Pipeline([step]), ctx).run(work)
            names.append(str(step))
            models.append(work.clone())
        wanted = _flat(reference_runner(source, job.ctx)(feeds))
        low, high = 0, len(models) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._differs(models[middle], feeds, output, wanted):
                high = middle
            else:
                low = middle
        return names[high], models[low], models[high]

    def _differs(self, model: Model, feeds: Feeds, output: str, wanted: Outputs) -> bool:
        try:
            ours = _flat(reference_runner(model, self._job.ctx)(fitted(model, feeds)))
        except DovetailError:
            return True
        return any(fault.output == output for fault in _faults(wanted, ours, _limit(self._job.original)))

    def _broken_node(self, before: Model, after: Model, feeds: Feeds) -> tuple[str, str]:
        """Find the first node after the pass with another value than before; empty if no value shows it."""
        plugins = self._job.ctx.plugins
        assert plugins is not None
        limit = _limit(self._job.original)
        with tempfile.TemporaryDirectory(prefix="dovetail-check-") as folder:
            recorded: list[RecordedValues] = []
            for number, model in enumerate((before, after)):
                place = Path(folder, str(number))
                place.mkdir()
                try:
                    recorded.append(
                        record(typed_copy(model, plugins), fitted(model, feeds), temporary_file(place), plugins)
                    )
                except DovetailError:
                    return "", ""
            for node in after.graph:
                for value in node.outputs:
                    one, other = (values.get(name_of(value)) for values in recorded)
                    if one is None or other is None:
                        continue
                    name = name_of(value)
                    if faults := _faults({name: one}, {name: other}, limit):
                        return name_of(node), f"{node.op_type}; {faults[0].text}"
        return "", ""


def _limit(model: Model) -> float:
    """Return the lowest SNR of a difference by rounding, by the types that the model holds."""
    values = (*model.graph.inputs, *model.graph.initializers.values())
    found = {float_name(value) for value in values}
    return min((_ROUNDING[name] for name in found if name in _ROUNDING), default=_ROUNDING_OF_FLOATS)


def _few_rows(model: Model, feeds: Feeds) -> Feeds:
    """Leave out all but a few samples, where inputs have samples in any number."""
    samples = inputs_of_samples(model)
    first = {name_of(value): next(iter(value.shape or ()), None) for value in model.graph.inputs}
    open_ = [name for name in samples if name in feeds and not is_static(first[name])]
    if len({len(feeds[name]) for name in open_}) != 1:
        return feeds
    return {name: array[:_ROWS] if name in open_ else array for name, array in feeds.items()}


def _flat(outputs: Mapping[str, object]) -> Outputs:
    return {name: array for output, value in outputs.items() for name, array in arrays_of(output, value).items()}


def _faults(wanted: Outputs, ours: Outputs, limit: float) -> list[_Fault]:
    """Return the outputs that differ by more than rounding of numbers near each other may."""
    found = []
    for name, array in wanted.items():
        if name not in ours:
            found.append(_Fault(name, f"'{name}' is missing"))
            continue
        total = _difference(array, ours[name])
        if total.shapes is not None:
            shapes = " instead of ".join(str(list(shape)) for shape in reversed(total.shapes))
            found.append(_Fault(name, f"'{name}' has shape {shapes}"))
        elif array.dtype.kind in "biuOSU":
            if total.equal < total.elements:
                differ = total.elements - total.equal
                found.append(
                    _Fault(name, f"'{name}' has {pluralize(differ, 'element')} of {total.elements} that differ")
                )
        elif total.snr_db < limit:
            found.append(_Fault(name, f"'{name}' has an SNR of {decibels_text(total.snr_db)}"))
    return found


def _explained(name: str, wanted: Outputs, ours: Outputs, variations: Sequence[tuple[Outputs, bool]]) -> bool:
    """Check whether the source itself varies as much: at random, or by rounding in other places."""
    if name not in ours:
        return False
    found = _difference(wanted[name], ours[name])
    for varied, same_inputs in variations:
        total = _difference(wanted[name], varied[name])
        differs = total.shapes is not None or total.equal < total.elements
        if same_inputs and differs:
            return True  # random numbers
        if wanted[name].dtype.kind in "biuOSU":
            if differs:
                return True
        elif total.shapes is not None or total.broken or found.snr_db >= total.snr_db - _MARGIN:
            return True
    return False


def _difference(one: np.ndarray, other: np.ndarray) -> DifferenceSums:
    total = DifferenceSums()
    total.add(one, other)
    return total


def _rounded(array: np.ndarray) -> np.ndarray:
    """Return floats with one rounding each, up or down in turn; anything else as it is."""
    import numpy as np

    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return array
    signs = np.where(np.arange(array.size) % 2, 1, -1).reshape(array.shape)
    return (array * (1 + signs * np.finfo(array.dtype).eps)).astype(array.dtype)
