"""Results of earlier programs in a folder of the user: sessions load them instead of compiling again.

The folder is `$DOVETAIL_RESULT_CACHE`, else `dovetail/results` in `$XDG_CACHE_HOME` or `~/.cache`;
`DOVETAIL_RESULT_CACHE=off` disables it. The least recently used results go when all together exceed
`$DOVETAIL_RESULT_CACHE_SIZE` bytes, 4 GiB by default. The folder may be removed at any time. Results are data:
nothing in it is run as a program.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.api import load
from dovetail.errors import DovetailError

from dovetail_adapters.result_key import file_state, is_unchanged

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

FOLDER, SIZE = "DOVETAIL_RESULT_CACHE", "DOVETAIL_RESULT_CACHE_SIZE"
_OFF = "off"
_LARGEST = 4 << 30  # bytes
_KEY = re.compile(r"[0-9a-f]{64}")
_RESULT, _ABOUT = "result", "about.json"
_ABANDONED = 3600.0  # seconds, after which what a killed process was writing goes


@dataclass(frozen=True)
class CachedResult:
    """A result in the cache.

    Attributes:
        key: Its digest.
        folder: Its folder.
        about: What it is, for people: model and backends.
        bytes: Its size.
        used: When it was used last, in seconds since 1970.
    """

    key: str
    folder: Path
    about: str
    bytes: int
    used: float


class ResultCache:
    """A folder of results; several processes may use it at once.

    Args:
        folder: The folder.
        most: The most bytes of all results.
    """

    def __init__(self, folder: Path, most: int = _LARGEST):
        self.folder, self.most = folder, most

    @classmethod
    def of_user(cls) -> ResultCache | None:
        """Return this user's cache; None if it is off, or its folder belongs to somebody else."""
        given = os.environ.get(FOLDER, "")
        if given == _OFF:
            return None
        home = os.environ.get("XDG_CACHE_HOME", "")
        folder = Path(given) if given else (Path(home) if home else Path.home() / ".cache") / "dovetail" / "results"
        size = os.environ.get(SIZE, "")
        return cls(folder, int(size) if size.isdecimal() else _LARGEST) if _is_own(folder) else None

    def load(self, key: str, plugins: PluginSet) -> CompiledModel | None:
        """Return a result, or None; one that is damaged, or whose weights' files have changed, is removed."""
        folder = self.folder / key
        try:
            about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            if not all(map(is_unchanged, about["files"])):
                raise ValueError("a file has changed")
            compiled = load(folder / _RESULT, plugins)
        except (OSError, ValueError, KeyError, TypeError, IndexError, DovetailError):
            shutil.rmtree(folder, ignore_errors=True)  # nothing, where there was none
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return compiled

    def store(self, key: str, compiled: CompiledModel, about: str, files: list[Path]) -> None:
        """Save a result. What fails costs nothing but the time of the next start.

        Args:
            key: Its digest.
            compiled: The result.
            about: What it is, for people.
            files: The files that it follows from: the model, its weights, data.
        """
        with contextlib.suppress(OSError, DovetailError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".", dir=self.folder))
            try:
                compiled.save(made / _RESULT)
                text = json.dumps({"about": about, "files": [file_state(path) for path in files]})
                (made / _ABOUT).write_text(text, encoding="utf-8")
                os.rename(made, self.folder / key)  # fails where another process was faster
            finally:
                shutil.rmtree(made, ignore_errors=True)
        self._evict()

    def entries(self) -> list[CachedResult]:
        """Return the results, the least recently used first."""
        found = []
        for folder in self._folders():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))["about"]
                size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                found.append(CachedResult(folder.name, folder, str(about), size, folder.stat().st_mtime))
        return sorted(found, key=lambda one: one.used)

    def clear(self) -> None:
        """Remove all results."""
        for folder in self._folders():
            shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return [path for path in self.folder.iterdir() if _KEY.fullmatch(path.name)]
        return []

    def _evict(self) -> None:
        entries = self.entries()
        total = sum(entry.bytes for entry in entries)
        for entry in entries:
            if total <= self.most:
                break
            shutil.rmtree(entry.folder, ignore_errors=True)
            total -= entry.bytes
        with contextlib.suppress(OSError):
            for path in self.folder.glob(".*"):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)


def _is_own(folder: Path) -> bool:
    """Whether a folder is this user's alone to write, or can be made."""
    if not hasattr(os, "getuid"):
        return True
    try:
        status = folder.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o022


def weight_files(model: Any) -> list[Path]:
    """Return the files outside of a model's own that its weights are in."""
    import onnx_ir as ir

    tensors = (value.const_value for _, graph in model.graphs() for value in graph.initializers.values())
    return sorted({Path(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)})
