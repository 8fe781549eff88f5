"""What a compiled result follows from, as a digest: model, request, data, versions and processor.

Files that it names count by their paths here; `read_files` says what of all that was read is as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from dovetail.plugin.loading import discover
from dovetail_onnx.files.folder_cache import CACHES
from dovetail_onnx.files.source_state import source_state
from dovetail_runtime.machine import fingerprint

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginRecord, PluginSet

_MOST_FILES = 10_000  # of a folder of data
_VARIABLES = "DOVETAIL_"  # environment variables that may change a result
_OWN = tuple(one.variable for one in CACHES)
_SUFFIX = ".onnx"


class NotCacheable(Exception):
    """A part of a request that no digest can stand for, such as a generator of data."""


class RequestKey:
    """What a result is found by again.

    Args:
        model: The model: the path of an ONNX file, bytes, or a protobuf.
        request: Backends and keywords of `dovetail.compile`.
        plugins: The plugins; None for all that are installed, which are not loaded for that.

    Attributes:
        digest: The digest of everything but the contents of files.
        files: The files that it names, and those in the folders that it names.
        packages: The top-level packages of the plugins, whose files it counts.

    Raises:
        NotCacheable: Something in it cannot be recognized again.
    """

    def __init__(self, model: object, request: Mapping[str, Any], plugins: PluginSet | None):
        if isinstance(model, (str, os.PathLike)) and Path(model).suffix != _SUFFIX:
            raise NotCacheable("a model that is no ONNX file")
        self.files: list[Path] = []
        found = plugins.plugins if plugins is not None else _installed()
        self.packages = ("dovetail", *sorted({one.target.partition(":")[0].partition(".")[0] for one in found}))
        parts = {
            "model": self._part(model, "the model"), "request": self._part(request, "the request"),
            "versions": _versions(found, plugins is not None, self.packages), "environment": _environment(),
        }  # fmt: skip
        self.digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _part(self, value: object, title: str) -> Any:
        """Return plain data that stands for a value."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (str, os.PathLike)):
            return self._text(os.fspath(value))
        if isinstance(value, Mapping):
            return {str(key): self._part(one, f"{title}: {key}") for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._part(one, title) for one in value]
        if isinstance(value, np.ndarray) and value.dtype != object:
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            return [value.dtype.str, list(value.shape), content]
        if is_proto(value):
            value = value.SerializeToString(deterministic=True)
        if isinstance(value, bytes):
            return hashlib.sha256(value).hexdigest()
        raise NotCacheable(f"{title} of type {type(value).__name__}")

    def _text(self, text: str) -> Any:
        """Return a text; the path of what it names, if that is there."""
        try:
            path = Path(text)
            found = [path] if path.is_file() else list(_files(path)) if path.is_dir() else []
        except (OSError, ValueError):  # too long, or with characters that no path has
            return text
        self.files += found
        return [text, [str(file.absolute()) for file in found]] if found else text


def _files(folder: Path) -> Iterator[Path]:
    number = 0
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            number += 1
            if number > _MOST_FILES:
                raise NotCacheable(f"{folder}: more than {_MOST_FILES} files")
            yield Path(root, name)


def is_proto(value: object) -> TypeGuard[onnx.ModelProto]:
    """Whether a value is an `onnx.ModelProto`; onnx is not imported for that."""
    module = sys.modules.get("onnx")
    return module is not None and isinstance(value, module.ModelProto)


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name.startswith(_VARIABLES) and not name.startswith(_OWN)
    }


def _versions(found: Sequence[PluginRecord], are_given: bool, packages: tuple[str, ...]) -> list[Any]:
    """Return the plugins with their versions, those of all that they require, the processor, and the state of code.

    An installation of sources in place keeps its version while it changes, so the times of its files count. Whether an
    installed plugin works follows from that.
    """
    if any(not one.version and one.status == "ok" for one in found):
        raise NotCacheable("plugins without a distribution")
    distributions = tuple(sorted({one.distribution for one in found}))
    status = "given" if are_given else "installed"
    records = sorted([one.name, one.distribution, one.version, one.status] for one in found)
    return [status, records, _fingerprint(distributions), source_state(packages)]


def _installed() -> list[PluginRecord]:
    """Return the records of what is installed; the environment, which is part of a key, may leave some out."""
    return [record for record, _ in discover((), None)]


@cache
def _fingerprint(distributions: tuple[str, ...]) -> dict[str, str]:
    return fingerprint(distributions)
