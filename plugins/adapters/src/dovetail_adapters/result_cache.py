"""Results of earlier programs in the user's cache: sessions load them instead of compiling again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.api import load
from dovetail.errors import DovetailError
from dovetail_onnx.files.folder_cache import RESULTS, CacheEntry, FolderCache

from dovetail_adapters.result_key import file_state, is_unchanged

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_FILES = "files"


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
        found = self._cache.find(key)
        if found is None:
            return None
        folder, facts = found
        try:
            if not all(map(is_unchanged, facts[_FILES])):
                raise ValueError("a file has changed")
            return load(folder, plugins)
        except (OSError, ValueError, KeyError, TypeError, IndexError, DovetailError):
            self._cache.drop(key)
            return None

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


def weight_files(model: Any) -> list[Path]:
    """Return the files outside of a model's own that its weights are in."""
    import onnx_ir as ir

    tensors = (value.const_value for _, graph in model.graphs() for value in graph.initializers.values())
    return sorted({Path(tensor.path) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)})
