"""The stamp in a compiled model: which request it is the result of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail import __version__

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context, Request

__all__ = ["STAMP", "stamp_for", "stamp_of"]

STAMP = "dovetail.request"
"""Its key in the model's metadata."""


def stamp_for(request: Request, ctx: Context) -> str:
    """A hash of the request and of everything else that the result depends on besides the model."""
    parts = {
        "dovetail": __version__,
        "request": {key: value for key, value in request.as_dict().items() if key not in ("data", "plan")},
        "backends": [_digest(ctx, choice.name) for choice in request.backends],
        "costs": _file_digest(request.costs),
        "data": _data_digest(request.data),
        "plugins": [(record.name, record.version) for record in ctx.plugins.plugins if record.status == "ok"],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _file_digest(path: str | None) -> str:
    """A hash of a cost table's file; one that a plugin brings goes with the plugin's version."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path and Path(path).is_file() else ""


def _data_digest(data: object) -> str:
    """A hash of the data, by which passes decide: of the file, of all files of a folder, or of the arrays."""
    digest = hashlib.sha256()
    if isinstance(data, (str, Path)):
        path = Path(data)
        for file in sorted(path.glob("*.npz")) if path.is_dir() else [path] if path.is_file() else []:
            with file.open("rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
    elif isinstance(data, Mapping):
        for name in sorted(data):
            digest.update(name.encode() + data[name].tobytes())
    return digest.hexdigest() if data is not None else ""


def stamp_of(model: Model) -> str:
    """The stamp that `model` carries, or empty."""
    if not model.untouched:
        return model.ir.metadata_props.get(STAMP, "")
    return next((entry.value for entry in model.skeleton().proto.metadata_props if entry.key == STAMP), "")


def _digest(ctx: Context, backend: str) -> str:
    """A hash of a backend's file: one that is edited in place makes another request."""
    return hashlib.sha256(ctx.registry.backend[backend].read_bytes()).hexdigest()
