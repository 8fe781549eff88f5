"""Skeletons: a proto small enough for onnx's own tools, with the weights kept outside.

onnx checks, converts and infers on whole protos. With weights inside, that copies them several times and fails above
2 GiB. Only tensors that inference may need stay inside: small integers and booleans (shapes, axes, indices) and very
small floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.map_types import from_proto, to_proto

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["Skeleton", "assemble", "is_stub", "split_weights"]

INTEGERS_UP_TO = 64 * 1024
FLOATS_UP_TO = 1024
_STUB = "dovetail-weight"


@dataclass
class Skeleton:
    """A `ModelProto` in which large initializers of the main graph are stubs, and their tensors by name."""

    proto: onnx.ModelProto
    weights: dict[str, ir.TensorProtocol]

    def copy(self) -> Skeleton:
        """Return a copy with its own proto and shared tensors."""
        return Skeleton(type(self.proto).FromString(self.proto.SerializeToString()), dict(self.weights))


def stays_inline(tensor: ir.TensorProtocol) -> bool:
    """Whether inference may need the values, so that they stay in the proto."""
    dtype = tensor.dtype
    limit = INTEGERS_UP_TO if dtype.is_integer() or dtype.name == "BOOL" else FLOATS_UP_TO
    return dtype.name == "STRING" or tensor.nbytes <= limit


def stub(tensor: onnx.TensorProto) -> None:
    """Mark a `TensorProto` as one whose data is kept outside the proto."""
    import onnx

    tensor.ClearField("raw_data")
    tensor.ClearField("external_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", _STUB


def is_stub(tensor: onnx.TensorProto) -> bool:
    """Whether `tensor` is a stub; true only for initializers of a skeleton's main graph.

    All external data is resolved before the first stub is made, so no file can contain the mark.
    """
    return len(tensor.external_data) == 1 and tensor.external_data[0].value == _STUB


def split_weights(model: ir.Model) -> Skeleton:
    """Serialise `model` without its weights; `model` is not changed."""
    import onnx_ir as ir

    weights: dict[str, ir.TensorProtocol] = {}
    values = []
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or stays_inline(tensor) and not isinstance(tensor, ir.ExternalTensor):
            continue
        values.append((value, tensor))
        if stays_inline(tensor):
            value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
        else:
            weights[name] = tensor
            shape = ir.Shape(tensor.shape)
            value.const_value = ir.ExternalTensor(_STUB, None, None, tensor.dtype, shape=shape, name=name)
    try:
        return Skeleton(to_proto(model), weights)
    finally:
        for value, tensor in values:
            value.const_value = tensor


def assemble(skeleton: Skeleton) -> ir.Model:
    """Build the onnx-ir model of a skeleton."""
    model = from_proto(skeleton.proto)
    for name, tensor in skeleton.weights.items():
        value = model.graph.initializers.get(name)
        if value is not None:
            value.const_value = tensor
    return model
