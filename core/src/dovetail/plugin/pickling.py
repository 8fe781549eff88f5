"""Compiled models in pickles: the path of a saved result, or the files of one that is only in memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.plugin.temporary import TemporaryFolder

if TYPE_CHECKING:
    from dovetail.plugin.compiled import CompiledModel

Reduced = tuple[Callable[..., "CompiledModel"], tuple[Any, ...]]
"""What `__reduce__` returns: a function, and its arguments."""


def state_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a result is written to a path: time and inode; empty if there is nothing."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ino


def reduced(compiled: CompiledModel) -> Reduced:
    """Return how to make a result again: `__reduce__` of `CompiledModel`.

    A result that is saved or loaded, and not edited since, is pickled by its path. Any other one is pickled with the
    files that saving it writes, weights included.

    Raises:
        DovetailError: The files of the result have changed since, or it cannot be saved.
    """
    from dovetail.plugin.loading.stores import store_for

    if compiled.saved_to is not None and compiled.is_saved:
        path = compiled.saved_to.absolute()
        with store_for(path, "identity", compiled.registry) as store:
            return _from_path, (type(compiled), path, store.identity(path), compiled.options)
    with TemporaryFolder("pickle") as folder:
        path = folder / "result"
        with store_for(path, "save", compiled.registry) as store:
            store.save(compiled, path)
        files = {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return _from_files, (type(compiled), files, compiled.options)


def _from_path(kind: type[CompiledModel], path: Path, identity: str, options: Mapping[str, Any]) -> CompiledModel:
    """Load a saved result.

    Raises:
        DovetailError: There is none any more, or another one.
    """
    from dovetail.plugin.loading.stores import store_for

    with store_for(path, "identity") as store:
        found = store.identity(path)
    if found != identity:
        raise DovetailError(
            f"{path} is not the result that was pickled, which this pickle names by its path",
            "save results that other processes load into folders of their own, and pickle again",
        )
    return _loaded(kind, path, options)


def _from_files(kind: type[CompiledModel], files: Mapping[str, bytes], options: Mapping[str, Any]) -> CompiledModel:
    """Load a result from its files, which exist as long as it does."""
    folder = TemporaryFolder("pickle")
    for name, content in files.items():
        path = folder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    compiled = _loaded(kind, folder.path, options)
    compiled.saved_to = None
    weakref.finalize(compiled, folder.cleanup)
    return compiled


def _loaded(kind: type[CompiledModel], path: Path, options: Mapping[str, Any]) -> CompiledModel:
    from dovetail.plugin.loading.loader import load_plugins
    from dovetail.plugin.loading.stores import loaded

    plugins = load_plugins()
    compiled = loaded(path, "load", kind, plugins.registry, plugins)
    compiled.options.update(options)
    return compiled
