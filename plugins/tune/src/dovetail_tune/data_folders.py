"""Data in two folders that workers read: half of the samples calibrate, the others judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError, system_error
from dovetail_runtime.data.data_split import Use, split_data

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail_runtime.data.independent_rows import Run


@dataclass(frozen=True)
class DataFolders:
    """The folders of both parts of the data.

    Attributes:
        calibrate: What candidates are compiled with.
        judge: What accuracy is measured on.
        text: Which samples judge, as a sentence, or why the same samples do both.
        too_few: Why a goal that is not missed is not called met, as a clause; empty if enough samples judge.
    """

    calibrate: Path
    judge: Path
    text: str
    too_few: str = ""


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
    split = split_data(model, data, run, halves=True)
    if not split.uses:
        raise DovetailError("the data holds no batch, so there is nothing to tune on", "give at least one sample")
    calibrate, judge = folder / "calibrate", folder / "judge"
    for part in (calibrate, judge):
        part.mkdir(parents=True, exist_ok=True)
        for old in part.glob("*.npz"):
            old.unlink()
    judging = frozenset(number for number, use in enumerate(split.uses) if use is Use.JUDGMENT)
    for part, samples in ((calibrate, frozenset(range(len(split.uses))) - judging), (judge, judging)):
        for number, (sample, arrays) in enumerate(split.read(samples), start=1):
            for name, array in arrays.items():
                if not isinstance(array, np.ndarray):
                    raise DovetailError(f"'{name}' holds {type(array).__name__}, and only arrays can be tuned on")
            # Files of one recording share a name before their number, by which a search for a goal divides them again.
            recording = f"{sample:06}_" if split.unit == "recording" else ""
            save_arrays(part / f"{recording}{number:06}.npz", arrays)
    return DataFolders(calibrate, judge if split.judged else calibrate, split.text, split.too_few)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an `.npz` file.

    Raises:
        DovetailError: The file cannot be written.
    """
    try:
        np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own parameters
    except OSError as error:
        raise system_error(error, f"{path}: samples cannot be written") from None
