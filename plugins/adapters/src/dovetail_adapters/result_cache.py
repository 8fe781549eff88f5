"""Results of earlier programs in the user's cache: sessions load them instead of compiling again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail_onnx.files.folder_cache import RESULTS, CacheEntry, FolderCache

from dovetail_adapters.result_key import file_state, is_unchanged, settled_state

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_FILES = "files"  # fact of an entry: the files that it follows from
_START = "start"  # part of an entry: how it starts
_MODEL = "model.onnx"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, DovetailError)


class ResultCache:
    """Results in a folder; several processes may use it at once."""

    def __init__(self, cache: FolderCache):
        self._cache = cache

    @classmethod
    def of_user(cls) -> ResultCache | None:
        """Return this user's cache; None if it is off, or its folder belongs to somebody else."""
        cache = RESULTS.open()
        return None if cache is None else cls(cache)

    def load(self, key: str, plugins: PluginSet) -> CompiledModel | None:
        """Return a result, or None; one that is damaged, or whose weights' files have changed, is removed."""
        from dovetail.api import load

        found = self._valid(key)
        try:
            return None if found is None else load(found[0], plugins)
        except _DAMAGE:
            self._cache.drop(key)
            return None

    def start(self, key: str) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder and the facts that `store_start` kept with a result; None if there is nothing valid."""
        self._valid(key)
        found = self._cache.find(key, _START)
        if found is None:
            return None
        folder, start = found
        try:
            is_valid = all(map(is_unchanged, start[_FILES])) and all(
                settled_state(folder / name)[1:] == state for name, state in start["own"].items()
            )
        except _DAMAGE:
            is_valid = False
        if not is_valid:
            self._cache.drop(key, _START)
        return (folder, start) if is_valid else None

    def store_start(
        self, key: str, about: str, files: list[Path], write: Callable[[Path], Mapping[str, Any] | None]
    ) -> None:
        """Keep how a result starts without being loaded. What fails costs nothing but the time of the next start.

        Args:
            key: The digest of a result that is kept here, or of one that is elsewhere.
            about: What the latter is, for people.
            files: Files outside of the folder that it starts from, which nobody else writes.
            write: Writes files into a folder, and returns plain data; None if the result does not start so.
        """

        def written(folder: Path) -> Mapping[str, Any] | None:
            facts = write(folder)
            if facts is None:
                return None
            own = (path for path in sorted(folder.rglob("*")) if path.is_file())
            return {
                **facts, _FILES: [settled_state(path) for path in files],
                "own": {path.relative_to(folder).as_posix(): settled_state(path)[1:] for path in own},
            }  # fmt: skip

        self._cache.store(key, about, written, _START)

    def result_files(self, key: str) -> list[Path]:
        """Return the files of a result, its model first; none if it is gone."""
        found = self._cache.find(key)
        folder = found[0] if found is not None else None
        if folder is None or not folder.is_dir():
            return []
        return [folder / _MODEL, *(path for path in sorted(folder.iterdir()) if path.name != _MODEL)]

    def store(self, key: str, compiled: CompiledModel, about: str, files: list[Path]) -> None:
        """Save a result. What fails costs nothing but the time of the next start.

        Args:
            key: Its digest.
            compiled: The result.
            about: What it is, for people: model and backends.
            files: The files that it follows from: the model, its weights, data.
        """

        def write(folder: Path) -> Mapping[str, Any]:
            compiled.save(folder)
            return {_FILES: [file_state(path) for path in files]}

        self._cache.store(key, about, write)

    def entries(self) -> list[CacheEntry]:
        """Return the results, the least recently used first."""
        return self._cache.entries()

    def _valid(self, key: str) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder and the facts of a result whose files are as they were; another one is removed."""
        found = self._cache.find(key)
        if found is None:
            return None
        _, facts = found
        try:
            states = facts.get(_FILES, [])
            if not all(map(is_unchanged, states)):
                raise ValueError("a file has changed")
        except _DAMAGE:
            self._cache.drop(key)
            return None
        return found
