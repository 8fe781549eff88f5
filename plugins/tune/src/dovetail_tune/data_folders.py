"""Data in parts that workers read, in folders or where it lies: to calibrate, to compare candidates, and to judge."""

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
    """The parts of the data.

    Attributes:
        calibrate: What candidates are compiled with.
        search: What candidates are compared with the original on.
        judge: What the winner is judged on, which no candidate saw; None if nothing could be held back for that.
        text: Which samples judge, as a sentence, or why none do.
        too_few: Why a goal that is not missed is not called met, as a clause; empty if enough samples judge.
    """

    calibrate: Part
    search: Part
    judge: Part | None
    text: str
    too_few: str = ""

    @property
    def place(self) -> str:
        """The path that workers have to see; empty if it is in another file system, of which fsspec knows."""
        if isinstance(self.search, FileItems):
            return "" if is_remote(self.search.path) else self.search.path
        return str(self.search.resolve())


def as_plain(part: Part) -> object:
    """Return a part of the data as a job has it."""
    return part.as_dict() if isinstance(part, FileItems) else str(part)


def from_plain(part: str | Mapping[str, Any]) -> str | FileItems:
    """Return the part of the data that a job has."""
    return part if isinstance(part, str) else FileItems.from_dict(part)


def write_split(model: Model, data: object, folder: Path, run: Run, lies: bool = False) -> DataFolders:
    """Write the parts of `data` as `.npz` files below `folder`; one batch is in memory at a time.

    Args:
        model: The source model.
        data: See `dovetail_runtime.data.sources.read_data`.
        folder: Where to write; files of an earlier run are replaced.
        run: Runs the model, to find out whether rows are independent.
        lies: Leave data that is divided between its files where it lies, for workers on other machines.

    Raises:
        DovetailError: The data does not match the model, holds no batch, or holds something other than arrays.
    """
    split = split_data(model, data, run, searched=True)
    if not split.uses:
        raise DovetailError("the data holds no batch, so there is nothing to tune on", "give at least one sample")
    if lies and (parts := _where_it_lies(model, split)) is not None:
        return DataFolders(*parts, split.text, split.too_few)
    uses = [use for use in Use if use in split.uses]
    for use in uses:
        (folder / use.value).mkdir(parents=True, exist_ok=True)
        for old in (folder / use.value).glob("*.npz"):
            old.unlink()
        samples = frozenset(number for number, one in enumerate(split.uses) if one is use)
        for number, (sample, arrays) in enumerate(split.read(samples), start=1):
            for name, array in arrays.items():
                if not isinstance(array, np.ndarray):
                    raise DovetailError(f"'{name}' holds {type(array).__name__}, and only arrays can be tuned on")
            # Files of one recording share a name before their number, by which a search for a goal divides them again.
            recording = f"{sample:06}_" if split.unit == "recording" else ""
            save_arrays(folder / use.value / f"{recording}{number:06}.npz", arrays)
    calibrate, search, judge = (folder / use.value if use in uses else None for use in Use)
    assert calibrate is not None, "whatever is divided calibrates"
    return DataFolders(calibrate, search or calibrate, judge, split.text, split.too_few)


def _where_it_lies(model: Model, split: DataSplit) -> tuple[FileItems, FileItems, FileItems] | None:
    """Return the files of the parts; None if data is not divided between files."""
    recordings = split.samples if split.unit == "recording" else ()
    calibrate, search, judge = (file_items(model, split.part(use), recordings) for use in Use)
    return (calibrate, search, judge) if calibrate is not None and search is not None and judge is not None else None


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an `.npz` file.

    Raises:
        DovetailError: The file cannot be written.
    """
    try:
        np.savez(path, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own parameters
    except OSError as error:
        raise system_error(error, f"{path}: samples cannot be written") from None
