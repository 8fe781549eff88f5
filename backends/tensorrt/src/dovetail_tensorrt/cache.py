"""Built engines: their files, and the user's cache of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dovetail.plugin import EngineError
from dovetail_onnx import ENGINES, file_sha256, parse_json, replacing_file, write_text

ENGINE, DESCRIPTION = "engine.plan", "engine.json"
_VERSION = 2
_DIGEST = "digest"


@dataclass(frozen=True)
class EnginePort:
    """An input or output of an engine: the name of its tensor, TensorRT's name of its type, and its extents."""

    name: str
    type: str
    shape: tuple[int, ...]
    is_shape: bool = False


@dataclass(frozen=True)
class EngineFile:
    """Description of an engine: its region, and the target that it was built for.

    Attributes:
        content: The digest of its region; see `dovetail_tensorrt.digest`.
        sdk: `TensorRT` or `TensorRT-RTX`.
        version: Its version.
        target: The target GPUs.
        workspace: Bytes; 0 means no limit.
        profile: The bounds of its inputs, as three points in text form.
        inputs: Its inputs, in the order of the region's.
        outputs: Its outputs, in the order of the region's.
        sha256: Digest of the file `engine.plan`.
        size: Size of this file in bytes.
    """

    content: str
    sdk: str
    version: str
    target: str
    workspace: int
    profile: dict[str, list[str]]
    inputs: tuple[EnginePort, ...]
    outputs: tuple[EnginePort, ...]
    sha256: str = ""
    size: int = 0


def write_engine(folder: Path, engine: EngineFile) -> None:
    """Write `engine.json` next to the engine, with a digest of itself."""
    document = {"format": _VERSION, **asdict(engine)}
    write_text(folder / DESCRIPTION, json.dumps({**document, _DIGEST: _digest(document)}, indent=2) + "\n")


def read_engine(folder: Path) -> EngineFile:
    """Read `engine.json`, after verifying that the engine is the file that it describes.

    Raises:
        EngineError: A file is missing, damaged, truncated, or of another version of this format.
    """
    try:
        document = parse_json((folder / DESCRIPTION).read_bytes())
        if not isinstance(document, dict) or document.pop("format", None) != _VERSION:
            raise ValueError("it has another format")
        if document.pop(_DIGEST, None) != _digest({"format": _VERSION, **document}):
            raise ValueError("it was altered since it was written")
        engine = EngineFile(**_typed(document))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise EngineError(f"{folder / DESCRIPTION} cannot be read: {error}", _AGAIN) from None
    path = folder / ENGINE
    try:
        size = path.stat().st_size
        if size != engine.size:
            what = "is truncated" if size < engine.size else "is too long"
            raise EngineError(f"{path} {what}: it has {size} of {engine.size} bytes", _AGAIN)
        if file_sha256(path) != engine.sha256:
            raise EngineError(f"{path} is not the engine that {DESCRIPTION} describes: its SHA-256 differs", _AGAIN)
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror or error}", _AGAIN) from None
    return engine


_AGAIN = "compile the model again"


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _typed(document: dict[str, Any]) -> dict[str, Any]:
    for name in ("inputs", "outputs"):
        document[name] = tuple(EnginePort(**{**port, "shape": tuple(port["shape"])}) for port in document[name])
    return document


def cache_key(*parts: object) -> str:
    """Return the cache key of an entry: a hash of everything that the engine depends on."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def engine_from_cache(
    key: str,
    folder: Path,
    build: Callable[[Path], EngineFile],
    is_wanted: Callable[[EngineFile], bool],
    note: Callable[[str], None],
) -> tuple[EngineFile, bool]:
    """Copy the files of an engine from the cache into `folder`, or build and cache them.

    An entry that is damaged or for another engine is rebuilt, with a note. A cache that cannot be read or written is
    ignored.

    Args:
        key: From `cache_key`.
        folder: The target folder.
        build: Builds the engine, and writes its files into a given folder.
        is_wanted: Checks whether a description matches the requested engine.
        note: Receives messages for the user.

    Returns:
        The engine's description, and whether it came from the cache.

    Raises:
        EngineError: It cannot be built.
        DovetailError: `folder` cannot be written to.
    """
    cache = ENGINES.open()
    if cache is None:
        return build(folder), False
    again = "an engine that was kept is built again"
    found = cache.find(key, damaged=lambda entry: note(f"{again}: {entry} is damaged"))
    if found is not None:
        entry = found[0]
        try:
            engine = read_engine(entry)
            if not is_wanted(engine):
                raise EngineError(f"{entry / DESCRIPTION} is of another engine")
            _copy(entry, folder)
            return engine, True
        except (EngineError, OSError) as error:
            why = error.message if isinstance(error, EngineError) else f"{entry}: {error}"
            note(f"{again}: {why}")
            cache.drop(key)
    engine = build(folder)

    def write(into: Path) -> dict[str, str]:
        _copy(folder, into)
        return {}

    cache.store(key, f"an engine of {engine.sdk} {engine.version} for {engine.target}", write)
    return engine, False


def _copy(source: Path, folder: Path) -> None:
    """Copy the files of an engine; the description comes last, so that it never describes a missing file."""
    for name in (ENGINE, DESCRIPTION):
        with (source / name).open("rb") as given, replacing_file(folder / name) as file:
            shutil.copyfileobj(given, file, 1 << 22)
