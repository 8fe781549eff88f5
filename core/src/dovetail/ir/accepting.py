"""Models in every form that Python users have them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.ir.model import Model

if TYPE_CHECKING:
    import onnx

__all__ = ["as_model"]

_TAKEN_OUT = 1024  # bytes; smaller initializers stay in the proto


def as_model(source: object) -> Model:
    """The model that `source` stands for.

    Args:
        source: A `Model`, the path of a file, an `onnx.ModelProto`, an `onnx_ir.Model`, or the bytes of a model file. A
            model in memory is copied where it is mutable; weights of an onnx-ir model are shared.

    Raises:
        DovetailError: The file or the bytes are no model.
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
    import onnx
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise DovetailError(f"the bytes are not an ONNX model, or they are cut short ({error})") from None
    return _without_weights(proto)


def _from_proto(source: onnx.ModelProto) -> Model:
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(source)
    return _without_weights(proto)


def _without_weights(proto: onnx.ModelProto) -> Model:
    """A model over `proto`, which is changed: its large weights become arrays beside it."""
    import onnx
    import onnx_ir as ir

    from dovetail.ir.skeleton import Skeleton, stays_inside, stub

    if not proto.HasField("graph"):
        raise DovetailError("the model holds no graph", "give the bytes of an .onnx file")
    weights = {}
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise DovetailError(
                f"the data of initializer '{tensor.name}' lies in a file, and a model in memory has no folder",
                "give the path of the model, or call onnx.load_external_data_for_model first",
            )
        if len(tensor.raw_data) >= _TAKEN_OUT:
            own = onnx.TensorProto()
            own.CopyFrom(tensor)
            try:
                held = ir.from_proto(own)
                held.numpy()
            except (ValueError, TypeError) as error:
                raise DovetailError(f"initializer '{tensor.name}' does not hold what it declares: {error}") from None
            if not stays_inside(held):
                weights[tensor.name] = held
                stub(tensor)
    return Model(skeleton=Skeleton(proto, weights))
