"""Values of all batches in temporary files, so that memory holds one batch."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

Batch = Mapping[str, Any]
"""Values of one batch by name."""


class ActivationCache:
    """Keeps values by name, batch by batch, until they are dropped.

    Args:
        beside: Has values that this one has not.
    """

    def __init__(self, beside: ActivationCache | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-refine-")
        self._paths: dict[str, Path] = {}
        self._made = 0
        self._beside = beside

    @contextmanager
    def writing(self) -> Iterator[Callable[[Batch], None]]:
        """A function that keeps the values of one batch; values of the same names are replaced."""
        with ExitStack() as files:
            opened: dict[str, Any] = {}

            def write(batch: Batch) -> None:
                for name, array in batch.items():
                    if name not in opened:
                        opened[name] = files.enter_context(self._new(name).open("wb"))
                    # Not `np.save`, which has no bfloat16. Only this user can write to the folder.
                    pickle.dump(array, opened[name], protocol=5)

            yield write

    def read(self, names: Iterable[str], batches: int) -> Iterator[dict[str, Any]]:
        """Some values of every batch."""
        with ExitStack() as files:
            opened = {name: files.enter_context(self._path(name).open("rb")) for name in names}
            for _ in range(batches):
                yield {name: pickle.load(file) for name, file in opened.items()}

    def drop(self, name: str) -> None:
        """Forget a value, if it is here."""
        path = self._paths.pop(name, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._paths[name] if name in self._paths or self._beside is None else self._beside._path(name)

    def _new(self, name: str) -> Path:
        self.drop(name)
        self._made += 1
        self._paths[name] = Path(self._folder.name) / str(self._made)
        return self._paths[name]
