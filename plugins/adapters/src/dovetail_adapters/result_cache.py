"""Results of earlier programs in the user's cache: sessions load them instead of compiling again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail_onnx.files.folder_cache import RESULTS, CacheEntry, FolderCache

from dovetail_adapters.read_files import ReadFiles

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_READ, _START = "read", "start"  # parts of an entry: what it was made of, and how it starts
_FILES = "files"  # fact of a start: the files of the result
_MODEL = "model.onnx"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, DovetailError)


class ResultCache:
    """Results in a folder; several processes may use it at once."""

    def __init__(self, cache: FolderCache):
        self._cache = cache

    @classmethod
    def of_user(cls) -> ResultCache | None:
        """Return this user's cache; None if it is off, or its folder cannot be used safely."""
        cache = RESULTS.open()
        return None if cache is None else cls(cache)

    def load(self, key: str, plugins: PluginSet) -> CompiledModel | None:
        """Return a result, or None; one that is damaged, or was made of files that have changed, is removed."""
        from dovetail.api import load

        found = self._cache.find(key) if self._is_current(key) else None
        try:
            return None if found is None else load(found[0], plugins)
        except _DAMAGE:
            self._cache.drop(key)
            return None

    def start(self, key: str) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder and the facts that `store_start` kept with a result; None if there is nothing valid."""
        found = self._cache.find(key, _START) if self._is_current(key) else None
        if found is None:
            return None
        folder, start = found
        try:
            is_valid = all(_state(Path(path)) == state for path, state in start[_FILES].items()) and all(
                _state(folder / name) == state for name, state in start["own"].items()
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
            about: What it is, for people.
            files: Its files.
            write: Writes files into a folder, and returns plain data; None if the result does not start so.
        """

        def written(folder: Path) -> Mapping[str, Any] | None:
            facts = write(folder)
            if facts is None:
                return None
            own = (path for path in sorted(folder.rglob("*")) if path.is_file())
            return {
                **facts, _FILES: {str(path.absolute()): _state(path) for path in files},
                "own": {path.relative_to(folder).as_posix(): _state(path) for path in own},
            }  # fmt: skip

        self._cache.store(key, about, written, _START)

    def result_files(self, key: str) -> list[Path]:
        """Return the files of a result, its model first; none if it is gone."""
        found = self._cache.find(key)
        folder = found[0] if found is not None else None
        if folder is None or not folder.is_dir():
            return []
        return [folder / _MODEL, *(path for path in sorted(folder.iterdir()) if path.name != _MODEL)]

    def store(self, key: str, compiled: CompiledModel, about: str) -> None:
        """Save a result. What fails costs nothing but the time of the next start.

        Args:
            key: Its digest.
            compiled: The result.
            about: What it is, for people: model and backends.
        """

        def write(folder: Path) -> Mapping[str, Any]:
            compiled.save(folder)
            return {}

        self._cache.store(key, about, write)

    def store_read(self, key: str, about: str, read: ReadFiles) -> None:
        """Keep what a result was made of, without which it is not found again.

        Args:
            key: Its digest.
            about: What it is, for people.
            read: What was read.
        """
        self._cache.store(key, about, lambda _: read.as_plain(), _READ)

    def entries(self) -> list[CacheEntry]:
        """Return the results, the least recently used first."""
        return self._cache.entries()

    def _is_current(self, key: str) -> bool:
        """Check that all that a result was made of is as it was; a result of anything else is removed."""
        found = self._cache.find(key, _READ)
        try:
            known = None if found is None else ReadFiles.from_plain(found[1])
            now = None if known is None else known.now()
        except _DAMAGE:
            now = None
        if now is None:
            self._cache.drop(key)
            return False
        if now != known:  # their times have settled, or they were written again with the same content
            self.store_read(key, "", now)
        return True


def _state(path: Path) -> list[int]:
    """Return what a file is recognized by that nobody but the cache or `save` writes: size, time and inode."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]
