"""Models in every form that Python users have them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import UsageError
from dovetail.ir.model import Model

if TYPE_CHECKING:
    import onnx

__all__ = ["as_model"]


def as_model(source: object) -> Model:
    """The model that `source` stands for.

    Args:
        source: A `Model`, the path of a file, an `onnx.ModelProto`, an `onnx_ir.Model`, or the bytes of a model file. A
            model in memory is copied where it is mutable; weights of an onnx-ir model are shared.

    Raises:
        DovetailError: The file or the bytes are no model, or the model is wrong (see `dovetail.ir.source`).
        UsageError: It is none of these.
    """
    import onnx
    import onnx_ir as ir

    if isinstance(source, Model):
        return source
    if isinstance(source, (str, os.PathLike)):
        from dovetail.ir.opening import open_model

        if not os.fspath(source):
            raise UsageError("the path of the model is empty", "name an .onnx file")
        return open_model(Path(source))
    if isinstance(source, onnx.ModelProto):
        return _from_proto(source)
    if isinstance(source, ir.Model):
        return Model(source.clone())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(source))
    raise UsageError(
        f"a model cannot be made of {type(source).__name__}",
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
