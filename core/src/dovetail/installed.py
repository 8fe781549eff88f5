"""Entry points of installed distributions. A folder of the path is read again only after it changed.

Reading all of them takes longer than loading the plugins, and a program that compiles many models asks each time.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata

_REQUIRED = re.compile(r"[^\w.-]")
DISTRIBUTION = "dovetail-core"
"""The name that core is installed by; another project owns `dovetail` in the public index."""


def entry_points(group: str) -> list[tuple[metadata.EntryPoint, str, str]]:
    """Return the entry points of a group by name and target, with name and version of their distribution.

    One that is twice on the path, as with editable installs, comes once.
    """
    found: dict[tuple[str, str, str], tuple[metadata.EntryPoint, str, str]] = {}
    for folder, changed in search_path():
        for item in _entry_points(group, folder, changed):
            found.setdefault((item[0].name, item[0].value, item[1]), item)
    return [found[key] for key in sorted(found)]


def search_path() -> list[tuple[str, int]]:
    """Return the folders where Python looks for distributions, each with the time of its last change."""
    folders = (folder or os.curdir for folder in dict.fromkeys(sys.path))
    return [(folder, os.stat(folder).st_mtime_ns) for folder in folders if os.path.exists(folder)]


@lru_cache(maxsize=256)
def _entry_points(group: str, folder: str, changed: int) -> list[tuple[metadata.EntryPoint, str, str]]:
    found = [(one, one.entry_points.select(group=group)) for one in metadata.distributions(path=[folder])]
    named = [(one.metadata, points) for one, points in found if points]  # parsed once, which takes a while
    return [(point, facts["Name"], facts["Version"]) for facts, points in named for point in points]


def required_by(distributions: Iterable[str]) -> set[str]:
    """Return distributions and all that they require, in the names that these are required by."""
    found: set[str] = set()
    waiting = list(distributions)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            with contextlib.suppress(metadata.PackageNotFoundError, ValueError):  # a file, or none that is installed
                waiting += (
                    _REQUIRED.split(text, 1)[0] for text in metadata.requires(name) or () if "extra ==" not in text
                )
    return found
