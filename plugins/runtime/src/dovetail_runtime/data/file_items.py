"""Some files of data in files, as input data that other processes read where it lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.ir import name_of
from dovetail_onnx.files.locations import is_remote

from dovetail_runtime.data.data_split import ENOUGH, DataPart
from dovetail_runtime.data.kept import RereadBatches
from dovetail_runtime.data.sources import data_items
from dovetail_runtime.feeds import optional_inputs, required_inputs

if TYPE_CHECKING:
    from dovetail.ir import Model


@dataclass(frozen=True)
class FileItems(RereadBatches):
    """Some of the files of data.

    Attributes:
        path: The file or folder of all of the data, as every machine finds it.
        inputs: Names of the inputs that the model needs, and of those with a default.
        numbers: The files, by number in reading order.
        recordings: The recording of each of these files; empty if every file is one of its own.
    """

    path: str
    inputs: tuple[tuple[str, ...], tuple[str, ...]]
    numbers: tuple[int, ...]
    recordings: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        wanted = frozenset(self.numbers)
        for number, (read, _) in enumerate(data_items(self.path, *self.inputs)):
            if number in wanted:
                yield read()

    def divided(self, parts: int) -> list[FileItems]:
        """Return at most this many parts: of n parts, each has every n-th file."""
        number = min(parts, len(self.numbers))
        return [
            replace(self, numbers=self.numbers[first::number], recordings=_counted(self.recordings[first::number]))
            for first in range(number)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        inputs, numbers = [list(names) for names in self.inputs], list(self.numbers)
        return {"path": self.path, "inputs": inputs, "numbers": numbers, "recordings": list(self.recordings)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> FileItems:
        """Return what `as_dict` gave."""
        required, optional = (tuple(map(str, names)) for names in found["inputs"])
        numbers, recordings = (tuple(map(int, found[name])) for name in ("numbers", "recordings"))
        return cls(str(found["path"]), (required, optional), numbers, recordings)


def file_items(model: Model, data: object, recordings: Sequence[int] = ()) -> FileItems | None:
    """Return data in files as these; None for any other data, such as arrays in memory or a part of one file.

    Args:
        model: The model.
        data: See `dovetail_runtime.data.sources.read_data`.
        recordings: The recording of each file of all of the data, by number; empty if every file is one of its own.

    Raises:
        DovetailError: The folder cannot be read.
    """
    whole, numbers = (data.data, data.items) if isinstance(data, DataPart) else (data, None)
    if not isinstance(whole, (str, Path)) or numbers == ():
        return None
    inputs = _names(required_inputs(model.graph)), _names(optional_inputs(model.graph))
    if numbers is None:
        numbers = tuple(range(sum(1 for _ in data_items(whole, *inputs))))
    path = str(whole) if is_remote(whole) else str(Path(whole).absolute())
    return FileItems(path, inputs, numbers, _counted([recordings[at] for at in numbers] if recordings else ()))


def _counted(recordings: Sequence[int]) -> tuple[int, ...]:
    """Return recordings by numbers from 0, in the order of their first files; files alone if too few are left."""
    known = {name: number for number, name in enumerate(dict.fromkeys(recordings))}
    return tuple(known[name] for name in recordings) if len(known) >= ENOUGH else ()


def _names(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(name_of, values))
