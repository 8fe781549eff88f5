"""Values between the blocks of a model, batch by batch: in memory as far as there is room, then in temporary files."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from dovetail.plugin import TemporaryFolder

Batch = Mapping[str, Any]
"""Values of one batch by name."""

_ROOM = 256 << 20  # bytes


class _Room:
    """Memory that the caches of a model share."""

    def __init__(self, size: int):
        self.left = size

    def take(self, value: Any) -> bool:
        """Take the room of an array; False if there is not enough, or it is no array."""
        if not isinstance(value, np.ndarray) or value.nbytes > self.left:
            return False
        self.left -= value.nbytes
        return True


class _Values:
    """One value in every batch: the first batches in memory, and all after one that had no room in a file."""

    def __init__(self, room: _Room, path: Path):
        self._room, self._path = room, path
        self._arrays: list[np.ndarray] = []
        self._files = ExitStack()
        self._file: Any = None

    def write(self, value: Any) -> None:
        """Add the value of the next batch."""
        if self._file is None and self._room.take(value):
            self._arrays.append(np.array(value))  # a stream of data may reuse its memory
            return
        if self._file is None:
            self._file = self._files.enter_context(self._path.open("wb"))
        # `np.save` does not support bfloat16. Pickle is safe here: only this user can write to the folder.
        pickle.dump(value, self._file, protocol=5)

    def close(self) -> None:
        """End writing."""
        self._files.close()

    def read(self) -> Iterator[Any]:
        """Yield the value of every batch; it may be dropped meanwhile."""
        arrays = list(self._arrays)
        if self._file is None:
            yield from arrays
            return
        with self._path.open("rb") as file:
            yield from arrays
            while True:
                try:
                    yield pickle.load(file)
                except EOFError:
                    return

    def drop(self) -> None:
        """Give back the room and remove the file."""
        self._room.left += sum(array.nbytes for array in self._arrays)
        self._arrays = []
        if self._file is not None:
            self._path.unlink(missing_ok=True)


class ActivationCache:
    """Activations by name, batch by batch, until they are dropped.

    Args:
        fallback: Cache for values that are not in this one, with which it shares 256 MiB of memory.
    """

    def __init__(self, fallback: ActivationCache | None = None) -> None:
        self._folder = TemporaryFolder("refine")
        self._values: dict[str, _Values] = {}
        self._made = 0
        self._fallback = fallback
        self._room: _Room = fallback._room if fallback is not None else _Room(_ROOM)

    @contextmanager
    def writing(self) -> Iterator[Callable[[Batch], None]]:
        """Yield a function that stores the values of one batch, replacing earlier values of the same names."""
        with ExitStack() as opened:
            written: dict[str, _Values] = {}

            def write(batch: Batch) -> None:
                for name, array in batch.items():
                    if name not in written:
                        written[name] = self._new(name)
                        opened.callback(written[name].close)
                    written[name].write(array)

            yield write

    def read(self, names: Iterable[str], batches: int) -> Iterator[dict[str, Any]]:
        """Yield the named values of every batch."""
        reading = {name: self._of(name).read() for name in names}
        for _ in range(batches):
            yield {name: next(values) for name, values in reading.items()}

    def change(self, name: str, by: Callable[[np.ndarray], np.ndarray], batches: int) -> None:
        """Replace a value of this cache by a function of it in every batch."""
        changed, before = self._made_values(), self._values[name]
        for value in before.read():
            changed.write(by(value))
        changed.close()
        self.drop(name)
        self._values[name] = changed

    def drop(self, name: str) -> None:
        """Drop a value if it is cached here."""
        values = self._values.pop(name, None)
        if values is not None:
            values.drop()

    def _of(self, name: str) -> _Values:
        return self._values[name] if name in self._values or self._fallback is None else self._fallback._of(name)

    def _new(self, name: str) -> _Values:
        self.drop(name)
        self._values[name] = self._made_values()
        return self._values[name]

    def _made_values(self) -> _Values:
        self._made += 1
        return _Values(self._room, self._folder.path / str(self._made))
