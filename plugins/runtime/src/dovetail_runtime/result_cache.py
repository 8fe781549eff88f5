"""Results of earlier processes in the user's cache folder, so that a program that compiles starts at once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail_onnx.files.parsing import Malformed, parse_json

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_OFF = "off"
_RESULT, _ENTRY, _WRITING = "result", "entry.json", "writing-"
_LARGEST = 2 << 30  # bytes of all results
_MOST = 200  # results
_IN_USE = 600.0  # seconds after its last use in which a result stays: its weights may not be read yet
_ABANDONED = 86_400.0  # seconds after which a folder that a process began to write is removed


@dataclass(frozen=True)
class CachedResult:
    """One result in the cache.

    Attributes:
        key: The hash of all that it depends on.
        about: The model and the backends, for people.
        bytes: Its size.
        used: The time of its last use, in seconds since 1970.
    """

    key: str
    about: str
    bytes: int
    used: float


class ResultCache:
    """A folder of results by key. Processes may use it at the same time: entries appear and disappear as a whole.

    Results whose artifacts or kernels are machine code are not kept, so that nothing in the folder is ever executed.

    Args:
        folder: The folder; created with its first entry, for this user alone.
        largest: Bytes of all results, beyond which the least recently used ones are removed.
    """

    def __init__(self, folder: Path, largest: int = _LARGEST):
        self.folder, self._largest = folder, largest

    def load(self, key: str, plugins: PluginSet | None = None) -> CompiledModel | None:
        """Return a result; None if there is none, it is damaged, or files that its model needs have changed."""
        import dovetail

        place = self.folder / key
        entry = self._entry(place)
        if entry is None or not _are_unchanged(entry["files"]):
            return None
        try:
            found = dovetail.load(place / _RESULT, plugins)
            os.utime(place / _ENTRY)
        except (DovetailError, OSError):
            return None  # damaged, or just removed by another process
        return found

    def keep(self, key: str, compiled: CompiledModel, about: str, files: Mapping[str, tuple[int, int]]) -> bool:
        """Keep a result; return whether it was kept.

        A full disk, a folder of somebody else, or a result with machine code are no errors: it is just not kept.

        Args:
            key: The hash of all that it depends on.
            compiled: The result.
            about: The model and the backends, for people.
            files: Size and time of further files of the model, by path.
        """
        if compiled.artifacts is not None or not self._is_ours(make=True):
            return False
        writing: Path | None = None
        try:
            writing = Path(tempfile.mkdtemp(prefix=_WRITING, dir=self.folder))
            compiled.save(writing / _RESULT)
            size = sum(file.stat().st_size for file in writing.rglob("*") if file.is_file())
            if size > self._largest // 2 or any(file.suffix in _CODE for file in writing.rglob("*")):
                return False
            (writing / _ENTRY).write_text(json.dumps({"about": about, "bytes": size, "files": files}))
            with contextlib.suppress(OSError):  # another process was first
                writing.rename(self.folder / key)
            self._trim()
        except (DovetailError, OSError):
            return False
        finally:
            if writing is not None:
                shutil.rmtree(writing, ignore_errors=True)
        return (self.folder / key).is_dir()

    def entries(self) -> list[CachedResult]:
        """Return what is there, the most recently used first."""
        found = []
        for place in self._places():
            entry = self._entry(place)
            if entry is not None:
                with contextlib.suppress(OSError):
                    used = (place / _ENTRY).stat().st_mtime
                    found.append(CachedResult(place.name, entry["about"], entry["bytes"], used))
        return sorted(found, key=lambda one: -one.used)

    def clear(self) -> int:
        """Remove everything; return how many results there were."""
        number = len(self.entries())
        for place in self._places():
            shutil.rmtree(place, ignore_errors=True)
        return number

    def _trim(self) -> None:
        """Remove the least recently used results while there are too many, and what dead processes began to write."""
        now, room = time.time(), self._largest
        for number, entry in enumerate(self.entries()):
            room -= entry.bytes
            if (room < 0 or number >= _MOST) and now - entry.used > _IN_USE:
                shutil.rmtree(self.folder / entry.key, ignore_errors=True)
        for place in self._places():
            with contextlib.suppress(OSError):
                if place.name.startswith(_WRITING) and now - place.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(place, ignore_errors=True)

    def _places(self) -> list[Path]:
        if not self._is_ours():
            return []
        try:
            return [Path(entry.path) for entry in os.scandir(self.folder) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def _entry(self, place: Path) -> dict[str, Any] | None:
        """Read what is recorded of a result; None if it is no entry of this cache."""
        if not self._is_ours():
            return None
        try:
            found = parse_json((place / _ENTRY).read_text())
        except (OSError, UnicodeDecodeError, Malformed):
            return None
        forms = {"about": str, "bytes": int, "files": dict}
        is_entry = isinstance(found, dict) and all(isinstance(found.get(key), form) for key, form in forms.items())
        return found if is_entry else None

    def _is_ours(self, make: bool = False) -> bool:
        """Check whether the folder is one that nobody else may write to; `make` creates it."""
        try:
            if make:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.lstat()
        except OSError:
            return False
        owned = not hasattr(os, "getuid") or status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o022
        return stat.S_ISDIR(status.st_mode) and owned


_CODE = (".so", ".dll", ".dylib", ".o", ".a")


def result_cache() -> ResultCache | None:
    """Return the cache in `$DOVETAIL_CACHE`, else `dovetail/results` in `$XDG_CACHE_HOME`; None if that says `off`."""
    given = os.environ.get("DOVETAIL_CACHE", "")
    if given == _OFF:
        return None
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if home else Path.home() / ".cache"
    return ResultCache(Path(given) if given else base / "dovetail" / "results")


def file_states(paths: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Return size and time of files, by absolute path.

    Raises:
        OSError: One of them does not exist.
    """
    found = {}
    for path in paths:
        state = path.stat()
        found[str(path.absolute())] = state.st_size, state.st_mtime_ns
    return found


def _are_unchanged(files: Mapping[str, Any]) -> bool:
    try:
        return all(list(state) == list(files[path]) for path, state in file_states(list(map(Path, files))).items())
    except (OSError, TypeError):
        return False


def hash_of(*parts: object) -> str:
    """Return a hash of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
