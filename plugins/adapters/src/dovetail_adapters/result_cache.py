"""Results of earlier programs in the user's cache: sessions load them instead of compiling again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail_onnx.files.folder_cache import RESULTS, CacheEntry, FolderCache

from dovetail_adapters.read_files import ReadFiles

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_READ, _START = "read", "start"  # parts of an entry: what it was made of, and how it starts
_MADE_OF, _FILES = "made of", "files"  # facts: of a result, and of its start, the files of the result
_MODEL = "model.onnx"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, DovetailError)


class KeptResult(NamedTuple):
    """A result that was kept.

    Attributes:
        compiled: The result.
        made_of: The digest of what it was made of.
    """

    compiled: CompiledModel
    made_of: str


class ResultCache:
    """Results in a folder; several processes may use it at once."""

    def __init__(self, cache: FolderCache):
        self._cache = cache

    @classmethod
    def of_user(cls) -> ResultCache | None:
        """Return this user's cache; None if it is off, or its folder cannot be used safely."""
        cache = RESULTS.open()
        return None if cache is None else cls(cache)

    def load(self, key: str, plugins: PluginSet) -> KeptResult | None:
        """Return a result, or None; one that is damaged, or was made of files that have changed, is removed."""
        from dovetail.api import load

        made_of = self._current(key)
        found = self._made_of(key, made_of)
        try:
            return None if found is None else KeptResult(load(found[0], plugins), made_of)
        except _DAMAGE:
            self._cache.drop(key)
            return None

    def start(self, key: str) -> tuple[Path, dict[str, Any]] | None:
        """Return the folder and the facts that `store_start` kept with a result; None if there is nothing valid."""
        found = self._made_of(key, self._current(key), _START)
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
        self, key: str, about: str, made_of: str, files: list[Path], write: Callable[[Path], Mapping[str, Any] | None]
    ) -> None:
        """Keep how a result starts without being loaded. What fails costs nothing but the time of the next start.

        Args:
            key: The digest of a result that is kept here, or of one that is elsewhere.
            about: What it is, for people.
            made_of: The digest that `store_read` returned for it.
            files: Its files.
            write: Writes files into a folder, and returns plain data; None if the result does not start so.
        """

        def written(folder: Path) -> Mapping[str, Any] | None:
            facts = write(folder)
            if facts is None:
                return None
            own = (path for path in sorted(folder.rglob("*")) if path.is_file())
            return {
                **facts, _MADE_OF: made_of, _FILES: {str(path.absolute()): _state(path) for path in files},
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

    def store(self, key: str, compiled: CompiledModel, about: str, made_of: str) -> None:
        """Save a result. What fails costs nothing but the time of the next start.

        Args:
            key: Its digest.
            compiled: The result.
            about: What it is, for people: model and backends.
            made_of: The digest that `store_read` returned for it.
        """

        def write(folder: Path) -> Mapping[str, Any]:
            compiled.save(folder)
            return {_MADE_OF: made_of}

        self._cache.store(key, about, write)

    def store_read(self, key: str, about: str, read: ReadFiles) -> str:
        """Keep what a result was made of, without which it is not found again.

        Args:
            key: Its digest.
            about: What it is, for people.
            read: What was read.

        Returns:
            A digest, by which the result is known to be made of it: another process may keep another one meanwhile.
        """
        self._cache.store(key, about, lambda _: read.as_plain(), _READ)
        return read.digest

    def entries(self) -> list[CacheEntry]:
        """Return the results, the least recently used first."""
        return self._cache.entries()

    def _made_of(self, key: str, digest: str, part: str = "") -> tuple[Path, dict[str, Any]] | None:
        """Return a part of an entry, if there is one that was made of what has this digest; another one is removed."""
        found = self._cache.find(key, part) if digest else None
        if found is not None and found[1].get(_MADE_OF) != digest:
            self._cache.drop(key, part)
            return None
        return found

    def _current(self, key: str) -> str:
        """Return the digest of what a result was made of; empty if that has changed, and the result is removed."""
        found = self._cache.find(key, _READ)
        try:
            known = None if found is None else ReadFiles.from_plain(found[1])
            now = None if known is None else known.now()
        except _DAMAGE:
            now = None
        if now is None:
            self._cache.drop(key)
            return ""
        if now != known:  # their times have settled, or they were written again with the same content
            self.store_read(key, "", now)
        return now.digest


def _state(path: Path) -> list[int]:
    """Return what a file is recognized by that nobody but the cache or `save` writes: size, time and inode."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]
