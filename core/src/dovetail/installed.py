"""Installed distributions: their entry points, versions and requirements. A folder is read again only after it changed.

Every command reads these facts. `importlib.metadata` parses them with the package `email`: importing it, and parsing
with it, takes longer than loading all plugins, so the few lines that are needed are read here.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DISTRIBUTION = "dovetail-core"
"""The name that core is installed by; another project owns `dovetail` in the public index."""

_HEADER = re.compile(r"^(Name|Version|Requires-Dist):[ \t]*(.*\S)", re.MULTILINE | re.IGNORECASE)
_SECTION = re.compile(r"^\[(.*)\]\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^\s*([^#;=\s][^=\n]*?)\s*=\s*(.*\S)", re.MULTILINE)
_TARGET = re.compile(r"([\w.]+)\s*(?::\s*([\w.]+)\s*)?(?:\[.*\])?")
_REQUIRED = re.compile(r"[\w.-]+")
_SEPARATORS = re.compile(r"[-_.]+")
_INFO = re.compile(r"(.+)\.(?:dist|egg)-info")


class EntryPoint(NamedTuple):
    """An entry point.

    Attributes:
        name: Its name in its group.
        value: Its target: `module` or `module:attribute`.
    """

    name: str
    value: str

    def load(self) -> Any:
        """Import the target and return it.

        Raises:
            ImportError: The target has another form; importing it may raise anything else.
        """
        target = _TARGET.fullmatch(self.value)
        if target is None:
            raise ImportError(f"entry point {self.name!r} names {self.value!r}, which is no module:attribute")
        found: Any = importlib.import_module(target[1])
        for part in (target[2] or "").split("."):
            found = getattr(found, part) if part else found
        return found


class Distribution(NamedTuple):
    """An installed distribution.

    Attributes:
        name: Its name.
        version: Its version.
        requirements: What it requires: `numpy>=1.26; extra == "speed"`.
    """

    name: str
    version: str
    requirements: tuple[str, ...]

    def required(self, with_extras: bool = False) -> set[str]:
        """Return the names of what it requires, and on request of what its extras require."""
        wanted = [text for text in self.requirements if with_extras or "extra ==" not in text]
        return {name[0] for name in map(_REQUIRED.match, wanted) if name}


class InstalledDistributions:
    """The distributions on Python's path at one time: its folders are looked at once."""

    def __init__(self) -> None:
        folders = (folder or os.curdir for folder in dict.fromkeys(sys.path))
        self._path = [(folder, os.stat(folder).st_mtime_ns) for folder in folders if os.path.exists(folder)]

    def get(self, name: str) -> Distribution | None:
        """Return the distribution of a name, written in any way; None if it is not installed."""
        key = _normalized(name)
        for folder, changed in self._path:
            if info := _infos(folder, changed).get(key):
                return _distribution(folder, changed, info)
        return None

    def entry_points(self, group: str) -> list[tuple[EntryPoint, Distribution]]:
        """Return the entry points of a group by name and target, each with its distribution.

        One that is twice on the path, as with editable installs, comes once.
        """
        found: dict[tuple[str, str, str], tuple[EntryPoint, Distribution]] = {}
        for folder, changed in self._path:
            for point, distribution in _entry_points(group, folder, changed):
                found.setdefault((point.name, point.value, distribution.name), (point, distribution))
        return [found[key] for key in sorted(found)]


def entry_points(group: str) -> list[tuple[EntryPoint, Distribution]]:
    """Return the entry points of a group that are installed now; see `InstalledDistributions.entry_points`."""
    return InstalledDistributions().entry_points(group)


def package_folder(package: str | ModuleType) -> Traversable:
    """Return the folder of a package, in whose files its data is.

    Raises:
        ImportError: There is no such package.
    """
    module = importlib.import_module(package) if isinstance(package, str) else package
    origin = module.__spec__.origin if module.__spec__ else None
    if origin is not None and os.path.isfile(origin):
        return Path(origin).parent
    from importlib import resources  # slow to import, and needed for packages in archives alone

    return resources.files(module)


def version_of(distribution: str) -> str:
    """Return the version of a distribution; empty if it is not installed."""
    found = InstalledDistributions().get(distribution)
    return found.version if found else ""


def required_by(distributions: Iterable[str]) -> set[str]:
    """Return distributions and all that they require, in the names that these are required by."""
    installed = InstalledDistributions()
    found: set[str] = set()
    waiting = list(distributions)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            known = installed.get(name)  # None for a file, or for a requirement that is not installed
            waiting += known.required() if known else ()
    return found


@lru_cache(maxsize=256)
def _infos(folder: str, changed: int) -> Mapping[str, str]:
    """Return the folders of distributions' metadata in a folder of the path, by normalized name."""
    found: dict[str, str] = {}
    for entry in _listed(folder):
        if match := _INFO.fullmatch(entry):
            found.setdefault(_normalized(match[1].partition("-")[0]), entry)
    return found


@lru_cache(maxsize=256)
def _entry_points(group: str, folder: str, changed: int) -> list[tuple[EntryPoint, Distribution]]:
    return [
        (point, _distribution(folder, changed, info))
        for info in _infos(folder, changed).values()
        for point in _points(group, _text(folder, info, "entry_points.txt"))
    ]


def _points(group: str, text: str) -> Iterator[EntryPoint]:
    _, *sections = _SECTION.split(text)
    for name, entries in zip(sections[::2], sections[1::2], strict=True):
        if name.strip() == group:
            yield from (EntryPoint(*match.groups()) for match in _ENTRY.finditer(entries))


@lru_cache(maxsize=4096)
def _distribution(folder: str, changed: int, info: str) -> Distribution:
    text = _text(folder, info, "METADATA") or _text(folder, info, "PKG-INFO")
    header = text.partition("\n\n")[0]
    facts = [(key.title(), value) for key, value in _HEADER.findall(header)]
    name, _, version = info.rpartition(".")[0].partition("-")  # where the metadata is damaged
    first = {"Name": name, "Version": version, **dict(reversed(facts))}
    return Distribution(first["Name"], first["Version"], tuple(value for key, value in facts if key == "Requires-Dist"))


def _normalized(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()


def _listed(folder: str) -> list[str]:
    """Return the names in a folder of the path, sorted; those in an archive where the path has one."""
    try:
        return sorted(os.listdir(folder))
    except NotADirectoryError:
        import zipfile  # few paths have archives

        return sorted(one.name for one in zipfile.Path(folder).iterdir()) if zipfile.is_zipfile(folder) else []
    except OSError:
        return []


def _text(folder: str, info: str, file: str) -> str:
    """Return the text of a file of metadata; empty if there is none."""
    try:
        with open(os.path.join(folder, info, file), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except NotADirectoryError:
        import zipfile

        found = zipfile.Path(folder).joinpath(info, file) if zipfile.is_zipfile(folder) else None
        return found.read_text(encoding="utf-8") if found is not None and found.is_file() else ""
    except OSError:
        return ""
