"""Input data: from files, or random where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.types import float_name
from dovetail.near import near_misses

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from dovetail.ir.model import Model

__all__ = ["Batch", "batches", "fitted"]

Batch = tuple[dict[str, "np.ndarray"], dict[str, "np.ndarray"]]
"""Inputs by name, and labels by output name ("" for the first output)."""

_LABELS = "labels"
_AT_ONCE = 64  # samples, where the model leaves the batch open
_OPEN_EXTENT = 16


def batches(model: Model, data: object, seed: int = 0) -> Iterator[Batch]:
    """The batches to run `model` on, one after the other.

    Args:
        model: Its inputs say which names, types and shapes are wanted.
        data: Arrays by input name, an `.npz` file, a folder of them, or None for one random batch. An array with more
            samples than the model takes at once is cut along its first axis. The array `labels` (or `labels:<output>`)
            is the truth to count hits against.
        seed: For random inputs.

    Raises:
        DovetailError: The data has no array for an input, one that no input has, or one that does not fit.
    """
    inputs = {v.name: v for v in model.graph.inputs if not v.is_initializer()}
    if data is None:
        yield {name: _random(value, seed + index) for index, (name, value) in enumerate(inputs.items())}, {}
        return
    for arrays, where in _sources(data):
        yield from _cut(inputs, arrays, where)


def fitted(model: Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`feeds` in the float types that `model` takes; data rarely has them, because NumPy's files know no bfloat16."""
    found = dict(feeds)
    for value in model.graph.inputs:
        array = found.get(value.name)
        if array is not None and float_name(value) is not None and array.dtype.kind == "f":
            found[value.name] = array.astype(value.dtype.numpy(), copy=False)
    return found


def _sources(data: object) -> Iterator[tuple[Mapping[str, np.ndarray], str]]:
    import numpy as np

    if isinstance(data, Mapping):
        yield data, "the data"
        return
    path = Path(str(data))
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise DovetailError(f"{path} holds no .npz file", "save the inputs with numpy.savez, by input name")
    for file in files:
        if not file.is_file():
            raise DovetailError(f"{file} does not exist")
        try:
            with np.load(file, allow_pickle=False) as arrays:
                yield dict(arrays), str(file)
        except (ValueError, OSError, EOFError) as error:
            raise DovetailError(f"{file} is not an .npz file: {error}", "save it with numpy.savez") from None
        except Exception as error:  # zipfile and pickle raise what they like on damaged files
            raise DovetailError(f"{file} cannot be read: {error}") from None


def _cut(inputs: Mapping[str, ir.Value], arrays: Mapping[str, np.ndarray], where: str) -> Iterator[Batch]:
    labels = {name: array for name, array in arrays.items() if name.partition(":")[0] == _LABELS and name not in inputs}
    for name in arrays.keys() - labels.keys() - inputs.keys():
        near = near_misses(name, inputs, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(inputs) or 'none'}"
        raise DovetailError(f"{where}: the model has no input '{name}'", hint)
    for name in inputs.keys() - arrays.keys():
        raise DovetailError(f"{where}: no array for input '{name}'", "name arrays after the model's inputs")
    for name in inputs:
        _all_numbers(name, arrays[name], where)
    counts = {name: _samples(value, arrays[name], where) for name, value in inputs.items()}
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
        raise DovetailError(f"{where}: '{name}' holds {missing} values that are no numbers", hint)


def _samples(value: ir.Value, array: np.ndarray, where: str) -> tuple[int, int]:
    """How many runs an array is for, and how many of its rows each takes."""
    if value.shape is None:
        return 1, 0
    shape, given = list(value.shape), list(array.shape)
    wanted = ", ".join(map(str, shape))
    rest = zip(shape[1:], given[1:], strict=False)
    if len(shape) != len(given) or any(isinstance(s, int) and s != g for s, g in rest):
        raise DovetailError(f"{where}: input '{value.name}' wants [{wanted}], the array has {given}")
    if not shape:
        return 1, 0
    if not isinstance(shape[0], int):
        return -(-given[0] // _AT_ONCE) or 1, _AT_ONCE
    if shape[0] == given[0]:
        return 1, shape[0]
    if shape[0] == 0 or given[0] % shape[0]:
        raise DovetailError(f"{where}: input '{value.name}' wants [{wanted}], the array has {given}")
    return given[0] // shape[0], shape[0]


def _random(value: ir.Value, seed: int) -> np.ndarray:
    """Random values of an input's type: normal floats, small integers that are valid as indices nearly everywhere."""
    import numpy as np

    if value.dtype is None or value.dtype.name == "STRING" or value.shape is None:
        raise DovetailError(f"no random values can be made for input '{value.name}'", "give --data")
    generator = np.random.default_rng(seed)
    shape = tuple(_extent(extent, axis) for axis, extent in enumerate(value.shape))
    if value.dtype.name == "BOOL":
        return np.asarray(generator.random(shape) < 0.5)
    if value.dtype.is_integer():
        return np.asarray(generator.integers(0, 2, shape), value.dtype.numpy())
    return np.asarray(generator.standard_normal(shape)).astype(value.dtype.numpy())


def _extent(extent: object, axis: int) -> int:
    """An open extent is one sample on the first axis, and a few elements elsewhere; a formula is computed with four."""
    if isinstance(extent, int):
        return extent
    text = str(getattr(extent, "value", "") or "")
    if text and not text.isidentifier():
        import sympy

        formula = sympy.sympify(text)
        return int(formula.subs(dict.fromkeys(formula.free_symbols, 4)))
    return 1 if axis == 0 else _OPEN_EXTENT
