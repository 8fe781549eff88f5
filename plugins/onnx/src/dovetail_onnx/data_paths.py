"""The locations of a model's data files: next to its path, regardless of links to the model or to the data.

Models are opened through links where caches keep content apart from names: Hugging Face has
`snapshots/REVISION/model.onnx -> ../../blobs/HASH`, and its data likewise. The rule is that of ONNX Runtime: data is
where its location says, relative to the path that was given, and its target must be in the folder of that path or in
the folder of the file that the path leads to. Two more places are accepted: next to a link on the way, or next to the
file itself, and the store in which the repository of the model keeps large files.
"""

from __future__ import annotations

import contextlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.files import seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_LINKS = 40  # as in Linux
_STORES = (".git/annex/objects", ".dvc/cache")
"""Folders of a repository to which large files are moved, with a link in their place."""
_SNAPSHOTS, _BLOBS = "snapshots", "blobs"


class DataPlaces:
    """The places where the data of one model may be.

    Args:
        path: The path of the model, as it was given.
    """

    def __init__(self, path: Path):
        self._folders = list(dict.fromkeys(hop.parent for hop in _hops(path)))

    def file(self, location: str) -> Path | None:
        """Return the file that a location leads to, without links on the way; None if it leads to a foreign place.

        Raises:
            FileNotFoundError: There is no such file in any place.
            OSError, ValueError, RuntimeError: The path cannot be followed.
        """
        if not location or os.path.isabs(location) or os.path.normpath(location).split(os.sep)[0] == os.pardir:
            return None
        for folder in self._folders:
            where = folder / location
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                seen(where).lstat()
                found = where.resolve(strict=True)
                return found if any(found.is_relative_to(root) for root in self._roots) else None
        raise FileNotFoundError(2, "No such file", str(self._folders[0] / location))

    @cached_property
    def _roots(self) -> list[Path]:
        """The folders that data may be in."""
        real = [folder.resolve() for folder in self._folders]
        return [*real, *_stores(real)]


class FolderPlaces:
    """The places that the files of a folder may be in, where a user names the folder and not its files.

    These are the folder itself, the store of its repository, and, for a snapshot of Hugging Face's cache, the blobs
    beside it. Where a link leads says nothing about its neighbors, so that no folder becomes one of the places because
    a link leads there.

    Args:
        folder: The folder, as it was given.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def target(self, name: str | Path) -> Path:
        """Return what a name in the folder leads to, without links on the way.

        Raises:
            LeadsOut: It leads to a foreign place.
            FileNotFoundError: It is not there.
            OSError, RuntimeError: The path cannot be followed.
        """
        found = (self._folder / name).resolve(strict=True)
        if not any(found.is_relative_to(root) for root in self._roots):
            raise LeadsOut(found)
        return found

    @cached_property
    def _roots(self) -> list[Path]:
        real = self._folder.resolve()
        return [real, *_stores([real]), *_blobs(real)]


class LeadsOut(Exception):
    """Raised for a path that leads out of a folder.

    Args:
        target: Where it leads.
    """

    def __init__(self, target: Path):
        self.target = target
        super().__init__(str(target))


def _stores(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the stores of the repositories that folders are in."""
    homes = dict.fromkeys(parent for folder in folders for parent in (folder, *folder.parents))
    stores = (home / store for home in homes for store in _STORES)
    yield from (store.resolve() for store in stores if store.is_dir() and not store.is_symlink())


def _blobs(folder: Path) -> Iterator[Path]:
    """Yield the blobs of Hugging Face's cache that a folder is a snapshot of: `snapshots/REVISION` beside `blobs`."""
    for inner in (folder, *folder.parents):
        blobs = inner.parent.parent / _BLOBS
        if inner.parent.name == _SNAPSHOTS and blobs.is_dir() and not blobs.is_symlink():
            yield blobs


def _hops(path: Path) -> Iterator[Path]:
    """Yield the absolute path of a file, and the path that each link leads to until there is none."""
    path = Path(os.path.abspath(path))
    for _ in range(_MOST_LINKS):
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.abspath(path.parent.resolve() / os.readlink(path)))
