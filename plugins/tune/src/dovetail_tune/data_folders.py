"""Data in two parts that workers read, in folders or where it lies: half of the samples calibrate, the others judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from dovetail.errors import DovetailError, system_error
from dovetail_onnx.files.locations import is_remote
from dovetail_runtime.data.data_split import DataSplit, Use, split_data
from dovetail_runtime.data.file_items import FileItems, file_items

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail_runtime.data.independent_rows import Run


Part: TypeAlias = "Path | FileItems"
"""A folder, or some of the files of the data where they lie."""


@dataclass(frozen=True)
class DataFolders:
    """Both parts of the data.

    Attributes:
        calibrate: What candidates are compiled with.
        judge: What accuracy is measured on.
        text: Which samples judge, as a sentence, or why the same samples do both.
        too_few: Why a goal that is not missed is not called met, as a clause; empty if enough samples judge.
    """

    calibrate: Part
    judge: Part
    text: str
    too_few: str = ""

    @property
    def place(self) -> str:
        """The path that workers have to see; empty if it is in another file system, of which fsspec knows."""
        if isinstance(self.judge, FileItems):
            return "" if is_remote(self.judge.path) else self.judge.path
        return str(self.judge.resolve())


def as_plain(part: Part) -> object:
    """Return a part of the data as a job has it."""
    return part.as_dict() if isinstance(part, FileItems) else str(part)


def from_plain(part: str | Mapping[str, Any]) -> str | FileItems:
    """Return the part of the data that a job has."""
    return part if isinstance(part, str) else FileItems.from_dict(part)


def write_split(model: Model, data: object, folder: Path, run: Run, lies: bool = False) -> DataFolders:
    """Write both parts of `data` as `.npz` files below `folder`; one batch is in memory at a time.

    Args:
        model: The source model.
        data: See `dovetail_runtime.data.sources.read_data`.
        folder: Where to write; files of an earlier run are replaced.
        run: Runs the model, to find out whether rows are independent.
        lies: Leave data that is divided between its files where it lies, for workers on other machines.

    Raises:
        DovetailError: The data does not match the model, holds no batch, or holds something other than arrays.
    """
    split = split_data(model, data, run, halves=True)
    if not split.uses:
        raise DovetailError("the data holds no batch, so there is nothing to tune on", "give at least one sample")
    if lies and (parts := _where_it_lies(model, split)) is not None:
        return DataFolders(*parts, split.text, split.too_few)
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


def _where_it_lies(model: Model, split: DataSplit) -> tuple[FileItems, FileItems] | None:
    """Return the files of both parts; None if data is not divided between files."""
    recordings = split.samples if split.unit == "recording" else ()
    calibrate, judge = (file_items(model, split.part(use), recordings) for use in (Use.CALIBRATION, Use.JUDGMENT))
    return (calibrate, judge) if calibrate is not None and judge is not None else None


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an `.npz` file.

    Raises:
        DovetailError: The file cannot be written.
    """
    try:
        np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own parameters
    except OSError as error:
        raise system_error(error, f"{path}: samples cannot be written") from None
