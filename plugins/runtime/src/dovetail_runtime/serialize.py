"""Region models as bytes or files, as an engine's reader requires, and arrays that its binding cannot hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.ir import is_onnx
from dovetail_onnx.files.writing import scratch_files
from dovetail_onnx.saving import save_model
from dovetail_onnx.skeleton import border_of
from dovetail_onnx.type_gaps import to_bytes, to_proto, write_node

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import RegionModel


LARGEST_IN_MEMORY = 1 << 30
"""Most bytes of weights that are passed in memory; protobuf is limited to two gigabytes."""

_SMALLEST_APART = 1 << 12  # bytes


def needs_file(model: Model) -> bool:
    """Check whether a model must be passed as a file: its weights are external files, or too large."""
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


def write_scratch(model: Model, path: Path) -> None:
    """Write a model to a file that an engine of this process reads, and that goes with it.

    Raises:
        DovetailError: The disk is full, or the folder cannot be written to.
    """
    with scratch_files():
        save_model(model, path)


def weight_bytes(model: Model) -> int:
    """Return the size of all weights of numbers, in memory or in files."""
    tensors = (value.const_value for _, graph in model.graphs() for value in graph.initializers.values())
    return sum(tensor.nbytes for tensor in tensors if tensor is not None and tensor.dtype.name != "STRING")


def engine_source(region: RegionModel) -> Path | bytes:
    """Return the file of a region if it has one, else its serialized model."""
    return region.path if region.path is not None else to_bytes(region.model.ir)


def source_without_weights(model: Model) -> tuple[bytes, dict[str, np.ndarray]]:
    """Serialize a model without its large weights, and return these as arrays for the engine.

    The serialized model declares them as external data without a file. Weights are not copied. Tensors of types that
    NumPy lacks remain in the model. Types and shapes between nodes are left to the engine, except for those of custom
    operators: writing them takes a third of the time.
    """
    import numpy as np
    import onnx_ir as ir
    from onnx_ir.serde import serialize_tensor_into, serialize_value_into

    graph = model.graph
    arrays: dict[str, np.ndarray] = {}
    tensors: dict[str, ir.TensorProtocol] = {}
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            continue
        tensors[name] = tensor
        if tensor.dtype is ir.DataType.STRING or tensor.nbytes < _SMALLEST_APART or tensor.dtype.bitwidth < 8:
            continue
        array = tensor.numpy()
        if array.dtype.type.__module__ != "numpy":
            continue
        arrays[name] = np.ascontiguousarray(array)
        shape = ir.Shape(tensor.shape.numpy())
        tensors[name] = ir.ExternalTensor(
            "weights", 0, tensor.nbytes, tensor.dtype, shape=shape, name=name, base_dir=""
        )
    proto = to_proto(border_of(model.ir))
    for name, tensor in tensors.items():
        tensor.name = name
        serialize_tensor_into(proto.graph.initializer.add(), tensor)
    for node in graph:
        write_node(proto.graph.node.add(), node)
        if not is_onnx(node):
            for value in node.outputs:
                if value.name and value.type is not None and not value.is_graph_output():
                    serialize_value_into(proto.graph.value_info.add(), value)
    return proto.SerializeToString(), arrays


TENSOR_TYPES = frozenset(
    {
        *("float64", "float32", "float16", "bfloat16"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
        *("bool", "string"),
    }
)
"""Element types with a NumPy (or ml_dtypes) array at every region border."""


def type_name(dtype: ir.DataType) -> str:
    """Return the lower-case name of an element type: `float32`, `bfloat16`, `string`."""
    import onnx_ir as ir

    return "string" if dtype is ir.DataType.STRING else dtype.numpy().name


def value_type(value: ir.Value | None) -> str:
    """Return the name of a value's element type; empty if it has none or is not a tensor."""
    import onnx_ir as ir

    if value is None or not isinstance(value.type, ir.TensorType) or value.type.dtype is ir.DataType.UNDEFINED:
        return ""
    return type_name(value.type.dtype)


def has_type(array: np.ndarray, type_: str) -> bool:
    """Check whether an array has elements of the named type."""
    if type_ == "string":
        return array.dtype.kind in "OUST"
    return array.dtype.name == type_
