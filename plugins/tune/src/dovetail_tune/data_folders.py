"""Data in two folders that workers read: even samples calibrate, odd ones judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError, system_error
from dovetail_runtime.data.data_split import split_data

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail_runtime.data.independent_rows import Run

_EVERY = 2  # of this many batches or rows, the last one judges
_FEWEST_ROWS = 2  # of a single batch that is split


@dataclass(frozen=True)
class DataFolders:
    """The folders of both parts of the data.

    Attributes:
        calibrate: What candidates are compiled with.
        judge: What accuracy is measured on.
        text: Which samples judge, as a sentence, or why the same samples do both.
    """

    calibrate: Path
    judge: Path
    text: str


def write_split(model: Model, data: object, folder: Path, run: Run) -> DataFolders:
    """Write both parts of `data` as `.npz` files below `folder`; one batch is in memory at a time.

    Args:
        model: The source model.
        data: See `dovetail_runtime.data.sources.read_data`.
        folder: Where to write; files of an earlier run are replaced.
        run: Runs the model, to find out whether rows are independent.

    Raises:
        DovetailError: The data does not match the model, holds no batch, or holds something other than arrays.
    """
    split = split_data(model, data, run, _EVERY, _FEWEST_ROWS)
    if not split.total:
        raise DovetailError("the data holds no batch, so there is nothing to tune on", "give at least one sample")
    calibrate, judge = folder / "calibrate", folder / "judge"
    for part in (calibrate, judge):
        part.mkdir(parents=True, exist_ok=True)
        for old in part.glob("*.npz"):
            old.unlink()
    for number, (is_held_out, arrays) in enumerate(split.read(), start=1):
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise DovetailError(f"'{name}' holds {type(array).__name__}, and only arrays can be tuned on")
        save_arrays((judge if is_held_out else calibrate) / f"{number:06}.npz", arrays)
    if split.held_out:
        return DataFolders(calibrate, judge, f"{split.text}; the others calibrate")
    why = split.why or "it is one sample"
    return DataFolders(calibrate, calibrate, f"the data that accuracy is measured on also calibrates, since {why}")


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an `.npz` file.

    Raises:
        DovetailError: The file cannot be written.
    """
    try:
        np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own parameters
    except OSError as error:
        raise system_error(error, f"{path}: samples cannot be written") from None
