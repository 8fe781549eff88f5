"""Region models as bytes or files, whichever an engine's reader takes, and arrays that its binding cannot hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail_onnx.skeleton import view_with_tensors
from dovetail_onnx.type_gaps import to_proto

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import RegionModel


LARGEST_IN_MEMORY = 1 << 30
"""Bytes of weights up to which a model is handed over in memory; protobuf ends at two gigabytes."""

_SMALLEST_APART = 1 << 12  # bytes


def needs_file(model: Model) -> bool:
    """Whether a model must be handed over as a file: its weights lie in files of their own, or are too large."""
    import onnx_ir as ir

    size = 0
    for _, graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                return True
            if tensor is not None and tensor.dtype is not ir.DataType.STRING:
                size += tensor.nbytes
    return size > LARGEST_IN_MEMORY


def source_of(region: RegionModel) -> Path | bytes:
    """The file of a region where there is one, its serialized form otherwise."""
    return region.path if region.path is not None else to_proto(region.model.ir).SerializeToString()


def source_without_weights(model: Model) -> tuple[bytes, dict[str, np.ndarray]]:
    """The serialized form of a model, and its large weights beside it, for an engine that takes these as arrays.

    In the serialized form they stand as external data without a file. Weights are not copied. Numbers in types that
    NumPy does not have stay in it.
    """
    import numpy as np
    import onnx_ir as ir

    arrays: dict[str, np.ndarray] = {}
    apart: dict[str, ir.TensorProtocol] = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or tensor.dtype is ir.DataType.STRING or tensor.nbytes < _SMALLEST_APART:
            continue
        array = tensor.numpy()
        if tensor.dtype.bitwidth < 8 or array.dtype.type.__module__ != "numpy":
            continue
        arrays[name] = np.ascontiguousarray(array)
        shape = ir.Shape(tensor.shape.numpy())
        apart[name] = ir.ExternalTensor("weights", 0, tensor.nbytes, tensor.dtype, shape=shape, name=name, base_dir="")
    return to_proto(view_with_tensors(model.ir, apart)).SerializeToString(), arrays


TENSOR_TYPES = frozenset(
    {
        *("float64", "float32", "float16", "bfloat16"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
        *("bool", "string"),
    }
)
"""Element types that have a NumPy (or ml_dtypes) array at every border."""


def type_name(dtype: ir.DataType) -> str:
    """The lower-case name of an element type: `float32`, `bfloat16`, `string`."""
    import onnx_ir as ir

    return "string" if dtype is ir.DataType.STRING else dtype.numpy().name


def value_type(value: ir.Value | None) -> str:
    """The name of a value's element type, empty when it has none or is not a tensor."""
    import onnx_ir as ir

    if value is None or not isinstance(value.type, ir.TensorType) or value.type.dtype is ir.DataType.UNDEFINED:
        return ""
    return type_name(value.type.dtype)


def matches(array: np.ndarray, type_: str) -> bool:
    """Whether an array holds elements of the named type."""
    if type_ == "string":
        return array.dtype.kind in "OUST"
    return array.dtype.name == type_
