"""Data of other file systems, as fsspec reads them: `s3://bucket/samples`, `https://...`, `memory://...`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import IO, Any

from dovetail.errors import DovetailError
from dovetail.files import seen_object
from dovetail.plugin.loading import described

from dovetail_runtime.data.array_files import ENDINGS, Arrays, InputNames, arrays_in

_TAGS = ("ETag", "etag", "md5Hash", "sha")  # of content, as fsspec's file systems name them
_CHUNK = 1 << 22  # bytes
_INSTALL = "pip install 'dovetail-runtime[remote]', and what fsspec needs for this protocol, such as s3fs"


def remote_items(url: str, inputs: InputNames) -> Iterator[tuple[Callable[[], Arrays], str]]:
    """Yield what reads each file below a URL, in the order of their paths; see `sources.data_items`.

    Raises:
        DovetailError: fsspec or what it needs is not installed, or there is no such file.
    """
    system, files = _files(url)
    seen_object(url, lambda: _identity(system, files))
    for file in files:
        where = str(system.unstrip_protocol(file))
        yield partial(_read, system, file, where, inputs), where


def remote_digest(url: str) -> str:
    """Hash the files below a URL: their names, and the tags of their content, or the content if there are none.

    Raises:
        DovetailError: They cannot be read.
    """
    return _identity(*_files(url))


def _identity(system: Any, files: list[str]) -> str:
    digest = hashlib.sha256()
    for file in files:
        try:
            facts = system.info(file)
            tags = {key: str(facts[key]) for key in _TAGS if facts.get(key)}
            if any(tag.startswith("W/") for tag in tags.values()):  # two contents may share a weak tag
                tags = {}
            if not tags:
                with system.open(file, "rb") as opened:
                    tags = {"sha256": _sha256(opened)}
        except Exception as error:  # each file system raises its own
            raise DovetailError(f"{file} cannot be read: {described(error)}") from error
        digest.update(f"{file} {facts.get('size')} {tags}\n".encode())
    return digest.hexdigest()


def _sha256(opened: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := opened.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _files(url: str) -> tuple[Any, list[str]]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise DovetailError(f"{url} is read with fsspec, which is not installed", _INSTALL) from error
    try:
        system, root = url_to_fs(url)
        system.invalidate_cache()  # of listings, which may be old
        found = sorted(system.find(root))
    except ImportError as error:
        raise DovetailError(f"{url}: {error}", _INSTALL) from error
    except Exception as error:  # each file system raises its own
        raise DovetailError(f"{url} cannot be read: {described(error)}") from error
    files = [file for file in found if PurePosixPath(file).suffix in ENDINGS]
    if not files:
        raise DovetailError(f"{url} holds no .npz, .npy or .pb file", "save the inputs with numpy.savez, by input name")
    return system, files


def _read(system: Any, file: str, where: str, inputs: InputNames) -> Arrays:
    try:
        with system.open(file, "rb") as opened:
            return arrays_in(opened, PurePosixPath(file), where, inputs)
    except DovetailError:
        raise
    except Exception as error:  # each file system raises its own
        raise DovetailError(f"{where} cannot be read: {described(error)}") from error
