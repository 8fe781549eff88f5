"""The state of installed code: sources that are installed in place change while their version stays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path


@cache
def source_folders(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders of top-level packages, whose files `source_state` counts."""
    found = (spec for package in packages if (spec := _spec(package)) is not None)
    return tuple(place for spec in found for place in spec.submodule_search_locations or ())


@cache
def source_state(packages: tuple[str, ...]) -> str:
    """Return a digest of the names, sizes, times and inodes of the files of top-level packages and modules."""
    digest = hashlib.sha256()
    for package in packages:
        for path in _sources(package):
            status = os.stat(path)
            digest.update(
                f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}\n".encode()
            )
    return digest.hexdigest()


def _spec(package: str) -> ModuleSpec | None:
    try:
        return find_spec(package)
    except (ImportError, ValueError):  # a module that no finder made, such as `__main__`
        return None


def _sources(package: str) -> Iterator[str]:
    spec = _spec(package)
    if spec is None:
        return
    if not spec.submodule_search_locations:
        if spec.origin and Path(spec.origin).is_file():
            yield spec.origin
        return
    for place in spec.submodule_search_locations:
        for root, folders, names in os.walk(place):
            folders[:] = sorted(set(folders) - {"__pycache__"})
            yield from (os.path.join(root, name) for name in sorted(names))
