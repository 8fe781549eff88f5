"""Batches that can be read again: those of an iterator, which are stored, and parts of other data."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.plugin import anonymous_file

_IN_MEMORY = 64 << 20  # bytes


class _Stored(NamedTuple):
    """Offset of a batch in the temporary file."""

    offset: int


class RereadBatches(ABC):
    """Batches that are the same each time they are read.

    Attributes:
        recordings: The recording that each batch is of, by number from 0; empty if every batch is one of its own.
    """

    recordings: Sequence[int] = ()

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Read the batches."""

    @property
    def everything(self) -> object:
        """The data that these batches are a part of: its extents are those that a result must take."""
        return self


class KeptBatches(RereadBatches):
    """Rereadable batches of an iterator, stored as they arrive.

    Calibration and verification read data in turn. The first 64 MiB stay in memory, the rest goes to a temporary file,
    which is deleted with this object. Data from a function that returns a fresh iterator is not stored.

    Args:
        batches: The iterator.
        in_memory: Bytes of arrays to keep in memory.
        recordings: The recording that each batch is of, by number, such as a prompt, of which a model has several
            batches; filled by whoever makes them. Without it every batch is one of its own.
    """

    def __init__(self, batches: Iterator[Any], in_memory: int = _IN_MEMORY, recordings: Sequence[int] = ()):
        self.recordings = recordings
        self._batches, self._room = batches, in_memory
        self._seen: list[Any] = []
        self._file: IO[bytes] | None = None

    def __iter__(self) -> Iterator[Any]:
        position = 0
        while True:
            if position < len(self._seen):
                batch = self._restored(self._seen[position])
            else:
                try:
                    batch = next(self._batches)
                except StopIteration:
                    return
                self._seen.append(self._kept(batch))
            yield batch
            position += 1

    def _kept(self, batch: Any) -> Any:
        """Return the batch itself if memory allows, else its location in the file.

        Raises:
            DovetailError: The file cannot be written.
        """
        self._room -= _size(batch)
        if self._room >= 0:
            return batch
        try:
            content = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
        except Exception:  # foreign objects may raise any exception
            return batch
        try:
            if self._file is None:
                self._file = anonymous_file()
            offset = self._file.seek(0, 2)
            self._file.write(content)
        except OSError as error:
            hint = "give a function that returns a fresh iterator; its batches are not kept"
            raise DovetailError(f"the batches of an iterator cannot be kept: {error}", hint) from None
        return _Stored(offset)

    def _restored(self, kept: Any) -> Any:
        if not isinstance(kept, _Stored) or self._file is None:
            return kept
        self._file.seek(kept.offset)
        return pickle.load(self._file)  # noqa: S301 - nobody else writes this file


def _size(batch: Any) -> int:
    """Return the size in bytes of the arrays in a batch."""
    arrays = batch.values() if hasattr(batch, "values") else batch if isinstance(batch, (tuple, list)) else [batch]
    return sum(getattr(array, "nbytes", 0) for array in arrays)
