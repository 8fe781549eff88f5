"""The files of an engine: `engine.plan`, and `engine.json`, which says what it was built of and for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dovetail.plugin import EngineError
from dovetail_onnx.files.digests import file_sha256
from dovetail_onnx.files.parsing import parse_json
from dovetail_onnx.files.writing import write_text

ENGINE, DESCRIPTION = "engine.plan", "engine.json"
_VERSION = 2
_DIGEST = "digest"


@dataclass(frozen=True)
class Port:
    """An input or output of an engine: the name of its tensor, TensorRT's name of its type, and its extents."""

    name: str
    type: str
    shape: tuple[int, ...]
    is_shape: bool = False


@dataclass(frozen=True)
class EngineFile:
    """What an engine was built of and for.

    Attributes:
        content: The digest of its region; see `dovetail_tensorrt.digest`.
        sdk: `TensorRT` or `TensorRT-RTX`.
        version: Its version.
        target: The GPUs that it is for.
        workspace: Bytes; 0 for as much as the GPU has.
        profile: The bounds of its inputs, each with its three points as text.
        inputs: Its inputs, in the order of the region's.
        outputs: Its outputs, in the order of the region's.
        sha256: Of the file `engine.plan`.
        size: Of this file, in bytes.
    """

    content: str
    sdk: str
    version: str
    target: str
    workspace: int
    profile: dict[str, list[str]]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sha256: str = ""
    size: int = 0


def write_engine(folder: Path, engine: EngineFile) -> None:
    """Write `engine.json` beside the engine, with a digest of its own."""
    document = {"format": _VERSION, **asdict(engine)}
    write_text(folder / DESCRIPTION, json.dumps({**document, _DIGEST: _digest(document)}, indent=2) + "\n")


def read_engine(folder: Path) -> EngineFile:
    """What `engine.json` says, once the engine is found to be the file that it describes.

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
        document[name] = tuple(Port(**{**port, "shape": tuple(port["shape"])}) for port in document[name])
    return document
