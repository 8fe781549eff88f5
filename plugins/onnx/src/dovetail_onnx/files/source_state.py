"""The state of installed code: sources that are installed in place change while their version stays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def source_state(packages: tuple[str, ...]) -> str:
    """Return a digest of the names, sizes and times of the files of top-level packages and modules."""
    digest = hashlib.sha256()
    for package in packages:
        for path in _sources(package):
            status = os.stat(path)
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _sources(package: str) -> Iterator[str]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # a module that no finder made, such as `__main__`
        return
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
