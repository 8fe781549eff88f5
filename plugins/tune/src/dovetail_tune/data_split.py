"""Data in two halves, in files that workers read: even samples calibrate, odd ones judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError, system_error
from dovetail.text import pluralize
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import inputs_of_samples, why_rows_stay_together

if TYPE_CHECKING:
    from dovetail.ir import Model

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], dict[str, np.ndarray]]
_FEWEST_ROWS = 2
_PROBED = 64  # rows that test whether rows may be split


@dataclass(frozen=True)
class Halves:
    """The folders of both halves.

    Attributes:
        calibrate: What candidates are compiled with.
        judge: What accuracy is measured on.
        text: Which samples judge, as a sentence, or why the same samples do both.
    """

    calibrate: Path
    judge: Path
    text: str


def split(model: Model, data: object, folder: Path, run: Run) -> Halves:
    """Write both halves of `data` as `.npz` files below `folder`; one batch is held in memory at a time.

    Batches are split; a single batch is split by rows, if its rows are independent.

    Args:
        model: The source model.
        data: See `dovetail_runtime.data.sources.read_data`.
        folder: Where to write; files of an earlier run are replaced.
        run: Runs the model, to find out whether rows are independent.

    Raises:
        DovetailError: The data does not match the model, holds no batch, or holds something other than arrays.
    """
    halves = folder / "calibrate", folder / "judge"
    for half in halves:
        half.mkdir(parents=True, exist_ok=True)
        for old in half.glob("*.npz"):
            old.unlink()
    number = 0
    for number, (feeds, labels) in enumerate(batches(model, data, run=run), start=1):
        _write(halves[(number - 1) % 2], number, feeds, labels)
    if not number:
        raise DovetailError("the data holds no batch, so there is nothing to tune on", "give at least one sample")
    if number > 1:
        return Halves(
            *halves, f"accuracy is that of {number // 2} of {pluralize(number, 'batch')}; the others calibrate"
        )
    feeds, labels = next(iter(batches(model, data, run=run)))
    rows, names, why = _rows(model, feeds, run)
    if why:
        return Halves(halves[0], halves[0], f"the data that accuracy is measured on also calibrates, since {why}")
    for index, half in enumerate(halves):
        chosen = {name: array[index::2] if name in names else array for name, array in feeds.items()}
        truth = {name: array[index::2] if len(array) == rows else array for name, array in labels.items()}
        _write(half, 1, chosen, truth)
    return Halves(*halves, f"accuracy is that of {rows // 2} of {pluralize(rows, 'row')}; the others calibrate")


def _rows(model: Model, feeds: Arrays, run: Run) -> tuple[int, frozenset[str], str]:
    """Return the rows of a batch, the inputs that have them, and why they cannot be split, or empty."""
    names = frozenset(_with_open_rows(model))
    lengths = {len(feeds[name]) for name in names}
    if len(lengths) != 1 or min(lengths) < _FEWEST_ROWS:
        return 0, names, "it is one sample"
    (rows,) = lengths
    return rows, names, why_rows_stay_together(model, feeds, names, min(rows, _PROBED), run)


def _with_open_rows(model: Model) -> Iterator[str]:
    samples = inputs_of_samples(model)
    for value in model.graph.inputs:
        if value.name in samples and value.shape and not isinstance(value.shape[0], int):
            yield value.name


def _write(half: Path, number: int, feeds: Mapping[str, Any], labels: Arrays) -> None:
    arrays = {**feeds, **{f"labels:{name}" if name else "labels": array for name, array in labels.items()}}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DovetailError(f"'{name}' holds {type(array).__name__}, and only arrays can be tuned on")
    save_arrays(half / f"{number:06}.npz", arrays)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an `.npz` file.

    Raises:
        DovetailError: The file cannot be written.
    """
    try:
        np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own parameters
    except OSError as error:
        raise system_error(error, f"{path}: samples cannot be written") from None
