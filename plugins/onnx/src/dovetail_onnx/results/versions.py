"""Versions and requirements of installed distributions, read again only where a folder of the path changed.

The cache key of every compilation has those of all plugins, and parsing their metadata takes long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from typing import NamedTuple

from dovetail.installed import search_path

_NAME = re.compile(r"[A-Za-z0-9._-]+")


class _Facts(NamedTuple):
    version: str
    requirements: frozenset[str]


class Versions:
    """Versions and requirements of distributions, at one time: the folders of the path are looked at once."""

    def __init__(self) -> None:
        self._path = search_path()

    def of(self, distribution: str) -> str:
        """Return the version of a distribution; empty if it is not installed."""
        return next((facts.version for facts in self._found(distribution)), "")

    def requirements_of(self, distribution: str) -> frozenset[str]:
        """Return the names of what a distribution and its extras require; none if it is not installed."""
        return next((facts.requirements for facts in self._found(distribution)), frozenset())

    def _found(self, distribution: str) -> Iterator[_Facts]:
        for folder, changed in self._path:
            facts = _facts(distribution, folder, changed)
            if facts is not None:
                yield facts


@lru_cache(maxsize=4096)
def _facts(distribution: str, folder: str, changed: int) -> _Facts | None:
    found = next(iter(metadata.distributions(name=distribution, path=[folder])), None)
    if found is None:
        return None
    names = (_NAME.match(text) for text in found.requires or ())
    return _Facts(found.version, frozenset(name[0] for name in names if name))
