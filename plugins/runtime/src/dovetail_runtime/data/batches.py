"""Batches of input data, split to match a model's inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.text import near_misses, pluralize
from dovetail_transforms.canonicalize.fix_inputs import without_fixed

from dovetail_runtime.data.independent_rows import (
    counted_together,
    fitted,
    inputs_of_samples,
    is_static,
    why_rows_stay_together,
)
from dovetail_runtime.data.sources import read_data
from dovetail_runtime.feeds import as_array, declared, given_inputs, optional_inputs, required_inputs, without_defaults
from dovetail_runtime.serialize import value_type
from dovetail_runtime.texts import as_texts

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_runtime.data.independent_rows import Run

__all__ = ["Batch", "as_given", "batches", "fitted"]

Feeds = Mapping[str, "np.ndarray"]
Batch = tuple[dict[str, "np.ndarray"], dict[str, "np.ndarray"]]
"""Inputs by name, and labels by output name ("" for the first output)."""

_LABELS = "labels"
_FIND_MISSING = ("Imputer", "IsNaN")
_MISSING_GOES = ("nodes_missing_value_tracks_true",)
_AT_ONCE = 64  # samples, if the model leaves the batch extent open


def batches(
    model: Model,
    data: object,
    made: Model | None = None,
    run: Run | None = None,
    whole: bool = False,
    say: Callable[[str], None] | None = None,
) -> Iterator[Batch]:
    """Yield the batches to run `model` on.

    Args:
        model: The model; its inputs determine names, types and shapes.
        data: See `dovetail_runtime.data.sources.read_data`. An array with more rows than the model can take is split
            along its first axis. If the model leaves the extent open, many rows are split only if the extent is named
            like a batch, and if splitting the first rows is found not to change the outputs. The array `labels` (or
            `labels:<output>`) is the ground truth for accuracy.
        made: A model compiled from it that runs on the same batches; its shapes may be static where `model` leaves them
            open.
        run: Runs `model` for that test; by default an engine of the host does.
        whole: Split only arrays that the model cannot take whole.
        say: Receives a message about each split, or why there is none.

    Raises:
        DovetailError: An input has no array, an array has no input, or an array does not match its input.
    """
    required = list(map(name_of, required_inputs(model.graph)))
    optional = list(map(name_of, optional_inputs(model.graph)))
    fixed = {name_of(v): v.shape for v in made.graph.inputs if v.shape is not None} if made is not None else {}
    samples = frozenset() if whole else inputs_of_samples(model)
    may_be_missing = _takes_missing_values(model)
    said: set[str] = set()
    tried: dict[tuple, str] = {}
    for read, where in read_data(data, required, optional):
        arrays = without_fixed(model.graph, read)
        inputs = {name_of(value): value for value in given_inputs(model.graph, arrays.keys())}
        shapes = {name: fixed.get(name, value.shape) for name, value in inputs.items()}
        given = {name: _made(array, inputs.get(name)) for name, array in arrays.items()}
        labels = _labels(inputs, optional, given, where, may_be_missing)
        feeds = {name: given[name] for name in inputs}
        cut, why = _cuttable(model, shapes, feeds, samples, run, tried)
        for text in (why, *_cut_texts(shapes, feeds, cut)):
            if text and say is not None and text not in said:
                said.add(text)
                say(text)
        yield from _cut(shapes, cut, feeds, labels, where)


def as_given(model: Model, data: object, *others: Model) -> list[Model]:
    """Return models that require the inputs with a default for which the data has values.

    For code that divides a model: the default would be a constant of its parts.

    Args:
        model: The model that the data is for.
        data: See `dovetail_runtime.data.sources.read_data`.
        others: Models derived from it.

    Raises:
        DovetailError: The data cannot be read.
    """
    required, optional = (list(map(name_of, part(model.graph))) for part in (required_inputs, optional_inputs))
    if not optional:
        return [model, *others]
    arrays, _ = next(read_data(data, required, optional), ({}, ""))
    given = frozenset(optional).intersection(arrays)
    return [without_defaults(one, given) if given else one for one in (model, *others)]


def _cuttable(
    model: Model,
    shapes: Mapping[str, ir.Shape | None],
    feeds: Feeds,
    samples: Collection[str],
    run: Run | None,
    tried: dict[tuple, str],
) -> tuple[frozenset[str], str]:
    """Return the inputs that may be split along an open extent, and the reason if long ones may not.

    The verdict for one batch holds for later batches with the same row shapes; it is cached in `tried`.
    """
    import numpy as np

    first = {name: next(iter(shape)) for name, shape in shapes.items() if shape}
    open_ = [n for n in samples if n in first and not is_static(first[n]) and getattr(feeds[n], "ndim", 0) > 0]
    open_ = counted_together({name: (first[name], len(feeds[name])) for name in open_})
    lengths = {len(feeds[name]) for name in open_}
    if max(lengths, default=0) <= _AT_ONCE:
        return frozenset(), ""
    if len(lengths) > 1:
        why = f"inputs have {' and '.join(map(str, sorted(lengths)))} rows"
    else:
        for name in feeds:
            _fits(name, shapes[name], feeds[name], "the data")
        alike = tuple((name, np.shape(array)[name in open_ :]) for name, array in sorted(feeds.items()))
        if alike not in tried:
            tried[alike] = why_rows_stay_together(model, feeds, open_, _AT_ONCE, run)
        why = tried[alike]
    if why:
        return frozenset(), f"{max(lengths)} rows of {_quoted(open_)} are run at once: {why}"
    return frozenset(open_), ""


def _cut_texts(shapes: Mapping[str, ir.Shape | None], feeds: Feeds, cut: Collection[str]) -> Iterator[str]:
    """Yield messages about split arrays, for the user."""
    if cut:
        rows = len(feeds[next(iter(cut))])
        yield (
            f"{rows} rows of {_quoted(cut)} are run in parts of {_AT_ONCE}: "
            f"the first {_AT_ONCE} gave the same outputs whole and in two parts"
        )
    for name, shape in shapes.items():
        extent = next(iter(shape or ()), None)
        if is_static(extent) and 0 < extent < len(feeds[name]):
            yield f"{len(feeds[name])} rows of '{name}' are run in parts of {extent}: the model takes no more at once"


def _quoted(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _made(given: object, value: ir.Value | None) -> np.ndarray:
    """Return an array unchanged, but for texts; convert a list or a number to the declared type of its input."""
    import numpy as np

    if hasattr(given, "__array__"):
        read = np.asarray(given)
        return as_texts(read, name_of(value)) if value is not None and value_type(value) == "string" else read
    if value is not None and not value_type(value):
        return cast("np.ndarray", given)  # a sequence value
    array = as_array(given, declared(value)) if value is not None and value_type(value) else None
    return array if array is not None else np.asarray(given)


def _takes_missing_values(model: Model) -> bool:
    """Check whether NaN means a missing value: to trees that say where it goes, and to what finds or replaces it."""
    return any(
        node.op_type in _FIND_MISSING or any(name in node.attributes for name in _MISSING_GOES)
        for node in model.nodes()
    )


def _labels(
    inputs: Collection[str], optional: Sequence[str], arrays: Feeds, where: str, may_be_missing: bool
) -> dict[str, np.ndarray]:
    """Return the label arrays; check that every other array matches an input, and that every input has one."""
    labels = {name: array for name, array in arrays.items() if name.partition(":")[0] == _LABELS and name not in inputs}
    for name in arrays.keys() - labels.keys() - set(inputs):
        known = dict.fromkeys((*inputs, *optional))
        near = near_misses(name, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(known) or 'none'}"
        raise DovetailError(f"{where}: the model has no input '{name}'", hint)
    for name in inputs:
        if name not in arrays:
            raise DovetailError(f"{where}: no array for input '{name}'", "name arrays after the model's inputs")
        if hasattr(arrays[name], "dtype") and not may_be_missing:
            _refuse_nan(name, arrays[name], where)
    return labels


def _cut(
    inputs: Mapping[str, ir.Shape | None], cut: Collection[str], arrays: Feeds, labels: Feeds, where: str
) -> Iterator[Batch]:
    _refuse_empty(inputs, arrays, where)
    tensors = [name for name in inputs if hasattr(arrays[name], "dtype")]
    counts = {n: _samples(n, s, arrays[n], n in cut, where) if n in tensors else (1, 0) for n, s in inputs.items()}
    rounds = max((rounds for rounds, _ in counts.values()), default=1)
    for name, (own, _) in counts.items():
        if own not in (1, rounds):
            raise DovetailError(f"{where}: '{name}' has samples for {own} runs, others for {rounds}")
    for turn in range(rounds):
        feeds, truth = {}, {}
        for name, (own, size) in counts.items():
            feeds[name] = arrays[name][turn * size : (turn + 1) * size] if own > 1 else arrays[name]
        size = max((size for own, size in counts.values() if own > 1), default=0)
        for name, array in labels.items():
            truth[name.partition(":")[2]] = array[turn * size : (turn + 1) * size] if rounds > 1 else array
        yield feeds, truth


def _refuse_nan(name: str, array: np.ndarray, where: str) -> None:
    """Raise an error for NaN in the data, because neither ranges nor comparisons are meaningful with one."""
    import numpy as np

    missing = int(np.isnan(array).sum()) if array.dtype.kind == "f" else 0
    if missing:
        first = int(np.argwhere(np.isnan(array))[0][0]) if array.ndim else 0
        hint = f"leave such samples out; the first is number {first}"
        raise DovetailError(f"{where}: '{name}' holds {pluralize(missing, 'value')} that are not numbers (NaN)", hint)


def _samples(name: str, declared: ir.Shape | None, array: np.ndarray, cut: bool, where: str) -> tuple[int, int]:
    """Return how many runs an array is for, and how many of its rows each run takes."""
    _fits(name, declared, array, where)
    if not declared:
        return 1, 0
    shape, given = list(declared), list(array.shape)
    wanted = ", ".join(map(str, shape))
    first = shape[0]
    if not is_static(first):
        if not cut:
            return 1, given[0]
        return -(-given[0] // _AT_ONCE) or 1, _AT_ONCE
    if first == given[0]:
        return 1, first
    if first == 0 or given[0] % first:
        raise DovetailError(f"{where}: input '{name}' wants [{wanted}], the array has {given}")
    return given[0] // first, first


def _fits(name: str, declared: ir.Shape | None, array: np.ndarray, where: str) -> None:
    """Raise an error if the rank or an extent after the first differs from the declared shape."""
    if declared is None or not hasattr(array, "shape"):
        return
    shape, given = list(declared), list(array.shape)
    rest = zip(shape[1:], given[1:], strict=False)
    if len(shape) != len(given) or any(is_static(s) and s != g for s, g in rest):
        raise DovetailError(f"{where}: input '{name}' wants [{', '.join(map(str, shape))}], the array has {given}")
    if shape and not given[0] and is_static(shape[0]) and shape[0] != 0:
        raise _no_sample(name, where)


def _refuse_empty(inputs: Mapping[str, ir.Shape | None], arrays: Feeds, where: str) -> None:
    """Raise an error if no open input has rows; some may have none, such as the tracks of a tracker without any."""
    rows = {name: len(arrays[name]) for name, shape in inputs.items() if shape and _has_rows(arrays[name])}
    if rows and not any(rows.values()) and all(not is_static(next(iter(inputs[name] or ()), 0)) for name in rows):
        raise _no_sample(next(iter(rows)), where)


def _has_rows(given: object) -> bool:
    """Check whether what is given for an input has a first axis."""
    import numpy as np

    return isinstance(given, np.ndarray) and given.ndim > 0


def _no_sample(name: str, where: str) -> DovetailError:
    return DovetailError(f"{where}: the array for input '{name}' holds no sample", "give at least one")
