"""Coerce paths, protos, onnx-ir models and bytes to `Model`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import UsageError
from dovetail.ir.model import Model

if TYPE_CHECKING:
    import onnx

__all__ = ["as_model"]


def as_model(source: object, read: Callable[[Path], Model] | None = None) -> Model:
    """Return the model of `source`.

    Args:
        source: A `Model`, the path of a file, an `onnx.ModelProto`, an `onnx_ir.Model`, or the bytes of a model file.
            Protos and onnx-ir models are copied; weights of an onnx-ir model are shared.
        read: Opens a file; `open_model` by default.

    Raises:
        DovetailError: The file or the bytes are not a model, or the model is invalid (see `dovetail.ir.source`).
        UsageError: `source` is of another type.
    """
    import onnx
    import onnx_ir as ir

    if isinstance(source, Model):
        return source
    if isinstance(source, (str, os.PathLike)):
        from dovetail.ir.opening import open_model

        if not os.fspath(source):
            raise UsageError("the path of the model is empty", "name an .onnx file")
        return (read or open_model)(Path(source))
    if isinstance(source, onnx.ModelProto):
        return _from_proto(source)
    if isinstance(source, ir.Model):
        return Model(source.clone())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(source))
    raise UsageError(
        f"{type(source).__name__} is not a model",
        "give a path, a dovetail Model, an onnx.ModelProto, an onnx_ir.Model, or the bytes of a model file",
    )


def _from_bytes(content: bytes) -> Model:
    from dovetail.ir.opening import open_proto, parse_proto

    return open_proto(parse_proto(content, "the model"))


def _from_proto(source: onnx.ModelProto) -> Model:
    import onnx

    from dovetail.ir.opening import open_proto

    proto = onnx.ModelProto()
    proto.CopyFrom(source)
    return open_proto(proto)
