"""Sessions in pickles: opened again by model and request, because sessions of engines cannot be copied."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.plugin import TemporaryFolder
from dovetail_onnx import onnx_runtime

from dovetail_adapters.result_key import is_proto

if TYPE_CHECKING:
    import onnxruntime as ort
    from dovetail.api import AnyModel

S = TypeVar("S")


def reduced(kind: type[S], arguments: Mapping[str, Any]) -> tuple[Callable[..., S], tuple[Any, ...]]:
    """Return how to open a session again: `__reduce__` of `InferenceSession`.

    Args:
        kind: The class of the session.
        arguments: Its arguments.

    Raises:
        PicklingError: The session has plugins that exist in this process alone.
        DovetailError: Its model is in memory, and cannot be written.
    """
    if arguments["plugins"] is not None:
        raise PicklingError("a session that was given `plugins` cannot be pickled: they exist in this process alone")
    settings = arguments["sess_options"]
    changed = {} if settings is None else _attributes_of(settings)
    portable = {**arguments, "path_or_bytes": _portable(arguments["path_or_bytes"]), "sess_options": None}
    return _reopened, (kind, portable, settings is not None, changed)


def _reopened(kind: type[S], arguments: Mapping[str, Any], has_settings: bool, attributes: Mapping[str, Any]) -> S:
    settings = onnx_runtime().SessionOptions() if has_settings else None
    for name, value in attributes.items():
        setattr(settings, name, value)
    return kind(**{**arguments, "sess_options": settings})


def absolute(model: AnyModel) -> AnyModel:
    """Return the absolute path of a file or folder that is named by a path, and any other model as it is."""
    is_path = isinstance(model, (str, os.PathLike)) and os.path.exists(model)
    return Path(model).absolute() if is_path else model  # type: ignore[arg-type]  # a path, as was checked


def _portable(model: AnyModel) -> AnyModel:
    """Return a model as another process opens it; a model in memory as the content of its file."""
    if isinstance(model, (str, bytes, os.PathLike)) or is_proto(model):
        return model
    from dovetail import api

    with TemporaryFolder("pickle") as folder:
        api.open(model).save(folder / "model.onnx", external=False)
        return (folder / "model.onnx").read_bytes()


def _attributes_of(settings: ort.SessionOptions) -> dict[str, Any]:
    """Return the attributes of settings that differ from those of new ones."""
    new = onnx_runtime().SessionOptions()
    names = [name for name, found in vars(type(settings)).items() if isinstance(found, property) and found.fset]
    return {name: value for name in names if (value := getattr(settings, name)) != getattr(new, name)}
