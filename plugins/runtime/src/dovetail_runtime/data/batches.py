"""Batches of input data, cut to what a model takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from dovetail.counting import counted
from dovetail.errors import DovetailError
from dovetail.ir.types import float_name
from dovetail.suggestions import near_misses

from dovetail_runtime.data.batch_extents import inputs_of_samples
from dovetail_runtime.data.sources import read_data
from dovetail_runtime.declared import declared
from dovetail_runtime.feeds import as_array
from dovetail_runtime.tensors import value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir.model import Model

__all__ = ["Batch", "batches", "fitted"]

Batch = tuple[dict[str, "np.ndarray"], dict[str, "np.ndarray"]]
"""Inputs by name, and labels by output name ("" for the first output)."""

_LABELS = "labels"
_AT_ONCE = 64  # samples, where the model leaves the batch open


def batches(model: Model, data: object, made: Model | None = None) -> Iterator[Batch]:
    """The batches to run `model` on, one after the other.

    Args:
        model: Its inputs say which names, types and shapes are wanted.
        made: A model made of it that runs on the same batches; its shapes may be fixed where `model` leaves them open.
        data: See `dovetail_runtime.data.sources.read_data`. An array with more samples than the model takes at once is
            cut along its first axis, where that counts samples. The array `labels` (or `labels:<output>`) is the truth
            to count hits against.

    Raises:
        DovetailError: The data has no array for an input, one that no input has, or one that does not fit.
    """
    inputs = {v.name: v for v in model.graph.inputs if not v.is_initializer()}
    fixed = {v.name: v.shape for v in made.graph.inputs if v.shape is not None} if made is not None else {}
    shapes = {name: fixed.get(name, value.shape) for name, value in inputs.items()}
    cut = inputs_of_samples(model)
    for arrays, where in read_data(data, list(inputs)):
        given = {name: _made(array, inputs.get(name)) for name, array in arrays.items()}
        yield from _cut(shapes, cut, given, where)


def fitted(model: Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`feeds` in the float types that `model` takes; data rarely has them, because NumPy's files know no bfloat16."""
    found = dict(feeds)
    for value in model.graph.inputs:
        array = found.get(value.name)
        if float_name(value) is not None and getattr(array, "dtype", None) is not None and array.dtype.kind == "f":
            found[value.name] = array.astype(value.dtype.numpy(), copy=False)
    return found


def _made(given: object, value: ir.Value | None) -> np.ndarray:
    """An array as it is; a list or a number in the type that the input declares."""
    import numpy as np

    if hasattr(given, "__array__"):
        return np.asarray(given)
    if value is not None and not value_type(value):
        return given  # a sequence
    array = as_array(given, declared(value)) if value is not None and value_type(value) else None
    return array if array is not None else np.asarray(given)


def _cut(
    inputs: Mapping[str, ir.Shape | None], cut: Collection[str], arrays: Mapping[str, np.ndarray], where: str
) -> Iterator[Batch]:
    labels = {name: array for name, array in arrays.items() if name.partition(":")[0] == _LABELS and name not in inputs}
    for name in arrays.keys() - labels.keys() - inputs.keys():
        near = near_misses(name, inputs, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(inputs) or 'none'}"
        raise DovetailError(f"{where}: the model has no input '{name}'", hint)
    for name in inputs.keys() - arrays.keys():
        raise DovetailError(f"{where}: no array for input '{name}'", "name arrays after the model's inputs")
    tensors = [name for name in inputs if hasattr(arrays[name], "dtype")]
    for name in tensors:
        _all_numbers(name, arrays[name], where)
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


def _all_numbers(name: str, array: np.ndarray, where: str) -> None:
    """Neither a range nor a comparison means anything after a NaN."""
    import numpy as np

    missing = int(np.isnan(array).sum()) if array.dtype.kind == "f" else 0
    if missing:
        first = int(np.argwhere(np.isnan(array))[0][0]) if array.ndim else 0
        hint = f"leave such samples out; the first is number {first}"
        raise DovetailError(f"{where}: '{name}' holds {counted(missing, 'value')} that are not numbers (NaN)", hint)


def _samples(name: str, declared: ir.Shape | None, array: np.ndarray, cut: bool, where: str) -> tuple[int, int]:
    """How many runs an array is for, and how many of its rows each takes."""
    if declared is None:
        return 1, 0
    shape, given = list(declared), list(array.shape)
    wanted = ", ".join(map(str, shape))
    rest = zip(shape[1:], given[1:], strict=False)
    if len(shape) != len(given) or any(_is_known(s) and s != g for s, g in rest):
        raise DovetailError(f"{where}: input '{name}' wants [{wanted}], the array has {given}")
    if not shape:
        return 1, 0
    if not given[0] and shape[0] != 0:
        raise DovetailError(f"{where}: the array for input '{name}' holds no sample", "give at least one")
    if not _is_known(shape[0]):
        if not cut:
            return 1, given[0]
        return -(-given[0] // _AT_ONCE) or 1, _AT_ONCE
    if shape[0] == given[0]:
        return 1, shape[0]
    if shape[0] == 0 or given[0] % shape[0]:
        raise DovetailError(f"{where}: input '{name}' wants [{wanted}], the array has {given}")
    return given[0] // shape[0], shape[0]


def _is_known(extent: object) -> bool:
    """Whether an extent is a number; some exporters write -1 for one that is open."""
    return isinstance(extent, int) and extent >= 0
