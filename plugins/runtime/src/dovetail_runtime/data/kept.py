"""Batches of an iterator, kept so that they can be read again."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from dovetail.errors import DovetailError

_IN_MEMORY = 64 << 20  # bytes


class _Stored(NamedTuple):
    """A batch in the file: where it begins."""

    offset: int


class Kept:
    """Batches that can be read again: those of an iterator are kept as they come.

    Calibration and verification read data in turn. The first 64 MiB stay in memory, the rest goes to a temporary file,
    which is gone with this object. A function that returns a fresh iterator keeps nothing.

    Args:
        batches: The iterator.
        in_memory: How many bytes of arrays stay in memory.
    """

    def __init__(self, batches: Iterator[Any], in_memory: int = _IN_MEMORY):
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
        """The batch itself while there is room for it, or where it is in the file.

        Raises:
            DovetailError: The file cannot be written.
        """
        self._room -= _size(batch)
        if self._room >= 0:
            return batch
        try:
            content = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
        except Exception:  # objects of other libraries raise what they like
            return batch
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="dovetail-data-")  # noqa: SIM115 - lives as long as this object
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
    """Bytes of the arrays in a batch."""
    arrays = batch.values() if hasattr(batch, "values") else batch if isinstance(batch, (tuple, list)) else [batch]
    return sum(getattr(array, "nbytes", 0) for array in arrays)
